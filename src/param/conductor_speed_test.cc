// What leases do for speed: the conductor with workers of a simulated clock, so that time is a
// number and not the machine's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "param/conductor.h"

namespace starling {
namespace {

class SimulatedWorkers {
 public:
  // Seconds for a sample, by worker; each gradient takes a part of `noise` more or less.
  explicit SimulatedWorkers(std::vector<double> sample_seconds, double noise = 0, uint64_t seed = 1)
      : sample_seconds_(std::move(sample_seconds)), noise_(noise), random_(seed) {}

  // One stretch of a conductor; returns how long it takes.
  double run(uint64_t samples, const ConsistencyOptions& consistency, PartitionKind partition,
             std::vector<double> speeds = {}) {
    Stretch stretch{.workers = {},
                    .free = SampleRanges({0, samples}),
                    .batch = kBatch,
                    .version = 0,
                    .consistency = consistency,
                    .partition = partition,
                    .speeds = std::move(speeds)};
    const size_t workers = sample_seconds_.size();
    for (size_t w = 0; w < workers; ++w) stretch.workers.push_back(static_cast<int>(w));
    leases_.assign(workers, {});
    Conductor conductor(stretch);
    now_ = 0;
    obey(conductor.begin());
    while (!under_way_.empty()) {
      const auto next =
          std::min_element(under_way_.begin(), under_way_.end(),
                           [](const Work& one, const Work& other) { return one.end < other.end; });
      const Work work = *next;
      under_way_.erase(next);
      now_ = work.end;
      obey(conductor.pushed(work.push));
    }
    EXPECT_TRUE(conductor.is_over());
    updates_ = conductor.version();
    return now_;
  }

  // A gradient of this worker, by its number, takes longer by this factor.
  void hold_up(int worker, size_t number, double factor) {
    held_up_ = {worker, number};
    held_factor_ = factor;
  }

  // The sizes of what it was lent.
  const std::vector<uint64_t>& leases(size_t worker) const { return leases_[worker]; }
  double updates() const { return static_cast<double>(updates_); }
  static constexpr uint64_t kBatch = 64;

 private:
  struct Work {
    Push push;
    double end;
  };

  void obey(const std::vector<Order>& orders) {
    for (const Order& order : orders) {
      if (order.kind != Order::Kind::kLend) continue;
      const auto w = static_cast<size_t>(order.worker);
      leases_[w].push_back(order.samples.size());
      const double part = static_cast<double>(random_() % 2001) / 1000 - 1;
      double seconds =
          sample_seconds_[w] * static_cast<double>(order.samples.size()) * (1 + noise_ * part);
      if (held_up_ == std::pair(order.worker, leases_[w].size())) seconds *= held_factor_;
      under_way_.push_back({{.worker = order.worker,
                             .samples = order.samples,
                             .version = 0,
                             .finite = true,
                             .seconds = seconds,
                             .sums = {}},
                            now_ + seconds});
    }
  }

  const std::vector<double> sample_seconds_;
  const double noise_;
  std::mt19937_64 random_;
  std::vector<Work> under_way_;
  std::vector<std::vector<uint64_t>> leases_;  // by worker
  double now_ = 0;
  uint64_t updates_ = 0;
  std::pair<int, size_t> held_up_{-1, 0};
  double held_factor_ = 1;
};

const std::vector<ConsistencyOptions> kConsistencies = {
    {.name = "async"}, {.name = "ssp", .staleness = 3}, {.name = "backup", .backup = 1}};
constexpr uint64_t kSamples = 30'000;

TEST(ConductorSpeed, LeasesBecomeProportionalToSpeed) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<double> sample_seconds;
    double speeds = 0;
    for (uint64_t w = 2 + random() % 4; w > 0; --w) {
      sample_seconds.push_back(1e-3 * static_cast<double>(1 + random() % 10));
      speeds += 1 / sample_seconds.back();
    }
    SimulatedWorkers workers(sample_seconds);
    workers.run(3000, {.name = "ssp"}, PartitionKind::kDynamic);
    for (size_t w = 0; w < sample_seconds.size(); ++w) {
      const double expected = SimulatedWorkers::kBatch / sample_seconds[w] / speeds;
      const std::vector<uint64_t>& leases = workers.leases(w);
      ASSERT_GE(leases.size(), 4u);
      // But for the last ones, of what was left.
      for (size_t i = leases.size() / 2; i + 2 < leases.size(); ++i)
        EXPECT_NEAR(static_cast<double>(leases[i]), std::max(expected, 1.0),
                    std::max(0.6, 0.12 * expected) + 1e-6);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ConductorSpeed, OneThatIsHeldUpOnceKeepsItsLeases) {
  SimulatedWorkers workers({1e-3, 1e-3, 1e-3, 1e-3});
  workers.hold_up(2, 20, 50);
  workers.run(kSamples, {.name = "ssp"}, PartitionKind::kDynamic);
  for (size_t i = 0; i + 2 < workers.leases(2).size(); ++i) EXPECT_EQ(workers.leases(2)[i], 16u);
}

TEST(ConductorSpeed, WhereNobodyWaitsLeasesAreOfOneSize) {
  SimulatedWorkers workers({1e-3, 1e-3, 1e-3, 10e-3});
  workers.run(kSamples, {.name = "async"}, PartitionKind::kDynamic);
  for (size_t w = 0; w < 4; ++w) {
    for (size_t i = 0; i + 2 < workers.leases(w).size(); ++i) EXPECT_EQ(workers.leases(w)[i], 16u);
  }
  EXPECT_LT(workers.leases(3).size(), workers.leases(0).size() / 8) << "it is lent fewer";
}

TEST(ConductorSpeed, ASlowWorkerHoldsNobodyUpByLeases) {
  for (const ConsistencyOptions& consistency : kConsistencies) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(consistency.name + " " + std::to_string(seed));
      // Backup workers are spare ones: without the slow one none is.
      ConsistencyOptions without = consistency;
      without.backup = 0;
      const double healthy = SimulatedWorkers({1e-3, 1e-3, 1e-3}, 0.1, seed)
                                 .run(kSamples, without, PartitionKind::kDynamic);
      SimulatedWorkers slow({1e-3, 1e-3, 1e-3, 10e-3}, 0.1, seed);
      EXPECT_LT(slow.run(kSamples, consistency, PartitionKind::kDynamic), healthy / 0.9);
      // Each costs the way of all weights and back: a round has the samples of a batch.
      if (consistency.name == "backup") {
        EXPECT_LT(slow.updates(), 1.1 * kSamples / SimulatedWorkers::kBatch);
      }
    }
  }
}

TEST(ConductorSpeed, EqualSharesAreAsSlowAsTheSlowest) {
  for (const ConsistencyOptions& consistency : kConsistencies) {
    SCOPED_TRACE(consistency.name);
    const double seconds = SimulatedWorkers({1e-3, 1e-3, 1e-3, 10e-3})
                               .run(kSamples, consistency, PartitionKind::kEqual);
    EXPECT_GE(seconds, 0.99 * kSamples / 4 * 10e-3);
  }
}

TEST(ConductorSpeed, SharesByKnownSpeedsEndTogether) {
  for (const ConsistencyOptions& consistency : kConsistencies) {
    if (consistency.name == "backup") continue;  // drops the work of the last
    SCOPED_TRACE(consistency.name);
    SimulatedWorkers workers({1e-3, 2e-3, 5e-3, 10e-3}, 0.1);
    const double seconds =
        workers.run(kSamples, consistency, PartitionKind::kWeighted, {1000, 500, 200, 100});
    EXPECT_LT(seconds, 1.1 * kSamples / (1000 + 500 + 200 + 100));
  }
}

}  // namespace
}  // namespace starling
