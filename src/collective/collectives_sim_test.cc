// Collectives in virtual time, by the thousand: delays, reorders and doubled messages change no
// bit; whoever dies, freezes or loses messages, every survivor ends in time and names the cause.
#include <gtest/gtest.h>

#include <optional>

#include "collective/collective_testing.h"
#include "collective/collectives.h"
#include "fabric/sim/sim.h"
#include "fabric/sim/sim_testing.h"

namespace starling {
namespace {

using std::chrono::milliseconds;

enum class Kind {
  kDirect,
  kHalving,
  kRing,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kGather,
  kBarrier
};
constexpr int kKinds = 8;
const char* const kNames[kKinds] = {"all_reduce_direct",
                                    "all_reduce_halving_doubling",
                                    "all_reduce_ring",
                                    "reduce_scatter",
                                    "all_gather",
                                    "broadcast",
                                    "gather",
                                    "barrier"};

// What all ranks do: operations started at once, of which each knows what must come out.
struct Script {
  int world = 2;
  std::vector<Kind> kinds;
  std::vector<SharedSum> sums;  // by operation; the result of what moves bytes is `expected`
  std::chrono::nanoseconds timeout = milliseconds(1000);
};

std::vector<size_t> float_cuts(const SharedSum& sum, int world) {
  std::vector<size_t> cuts = slice_cuts(sum.length(), static_cast<size_t>(world), 16);
  for (size_t& cut : cuts) cut *= sizeof(float);
  return cuts;
}

// One rank as a machine.
class Rank {
 public:
  Rank(const Script& script, Fabric& fabric) : script_(script), fabric_(fabric) {}

  // True when all its operations are over.
  bool advance() {
    if (!all_) start();
    all_->advance();
    for (const auto& handle : handles_) {
      if (!all_->is_over(handle)) {
        fabric_.progress(all_->next_deadline());
        return false;
      }
    }
    ended_ = fabric_.now();
    for (const auto& handle : handles_) results_.push_back(all_->wait(handle));
    return true;
  }

  // Every result that is not a failure has the right bits; the failures.
  std::vector<Failure> check() const {
    std::vector<Failure> failures;
    for (size_t k = 0; k < results_.size(); ++k) {
      if (!results_[k]) {
        failures.push_back(results_[k].failure());
        continue;
      }
      const SharedSum& sum = script_.sums[k];
      if (script_.kinds[k] == Kind::kReduceScatter) {
        const Span at = all_->slice_of(sum.length(), fabric_.rank());
        const auto is = std::span(outs_[k]).subspan(at.begin, at.size());
        const auto expected = std::span(sum.expected).subspan(at.begin, at.size());
        EXPECT_TRUE(std::equal(is.begin(), is.end(), expected.begin()));
      } else if (script_.kinds[k] == Kind::kRing) {
        for (size_t i = 0; i < sum.length(); ++i) {
          EXPECT_NEAR(outs_[k][i], sum.expected[i], 1e-5);
        }
      } else if (script_.kinds[k] != Kind::kBarrier &&
                 (script_.kinds[k] != Kind::kGather || fabric_.rank() == root(k))) {
        EXPECT_TRUE(outs_[k] == sum.expected) << kNames[static_cast<int>(script_.kinds[k])];
      }
    }
    return failures;
  }
  Instant ended() const { return ended_; }
  bool is_over() const { return !results_.empty(); }

 private:
  int root(size_t k) const { return static_cast<int>(k) % script_.world; }

  void start() {
    CollectiveOptions options{.timeout = script_.timeout, .chunk_bytes = 64, .window = 2};
    options.exact = std::count(script_.kinds.begin(), script_.kinds.end(), Kind::kRing) == 0;
    all_.emplace(fabric_, script_.sums[0].placement, options);
    outs_.resize(script_.kinds.size());
    own_.resize(script_.kinds.size());
    for (size_t k = 0; k < script_.kinds.size(); ++k) start_one(k);
  }

  void start_one(size_t k) {
    const SharedSum& sum = script_.sums[k];
    const int rank = fabric_.rank();
    own_[k] = sum.of(rank);
    outs_[k].assign(sum.length(), -1.0f);
    all_->set_placement(sum.placement);
    const auto at = all_->slice_of(sum.length(), rank);
    const auto bytes = std::as_writable_bytes(std::span(outs_[k]));
    const auto own_slice = std::span(outs_[k]).subspan(at.begin, at.size());
    const auto fill_slice = [&] {
      std::copy_n(sum.expected.begin() + static_cast<ptrdiff_t>(at.begin), at.size(),
                  own_slice.begin());
    };
    switch (script_.kinds[k]) {
      case Kind::kDirect:
        handles_.push_back(
            all_->all_reduce(pointers(own_[k]), outs_[k], AllReduceAlgorithm::kDirect));
        break;
      case Kind::kHalving:
        handles_.push_back(
            all_->all_reduce(pointers(own_[k]), outs_[k], AllReduceAlgorithm::kHalvingDoubling));
        break;
      case Kind::kRing:
        handles_.push_back(
            all_->all_reduce(pointers(own_[k]), outs_[k], AllReduceAlgorithm::kRing));
        break;
      case Kind::kReduceScatter:
        handles_.push_back(all_->reduce_scatter(pointers(own_[k]), sum.length(), own_slice));
        break;
      case Kind::kAllGather:
        fill_slice();
        handles_.push_back(all_->all_gather(outs_[k]));
        break;
      case Kind::kBroadcast:
        if (rank == root(k)) outs_[k] = sum.expected;
        handles_.push_back(all_->broadcast(root(k), std::as_writable_bytes(std::span(outs_[k]))));
        break;
      case Kind::kGather:
        fill_slice();
        handles_.push_back(
            all_->gather(root(k), std::as_bytes(own_slice), bytes, float_cuts(sum, script_.world)));
        break;
      case Kind::kBarrier:
        handles_.push_back(all_->barrier());
        break;
    }
  }

  const Script& script_;
  Fabric& fabric_;
  std::vector<std::vector<std::vector<float>>> own_;
  std::vector<std::vector<float>> outs_;
  std::optional<Collectives> all_;
  std::vector<Collectives::Handle> handles_;
  std::vector<Status> results_;
  Instant ended_{};
};

struct Outcome {
  std::vector<std::vector<Failure>> failures;  // by rank; none of the dead
  std::vector<bool> over;
  Instant last{};  // when the last rank was done
  uint64_t operations = 0;
};

Outcome run(const Script& script, SimOptions options) {
  options.world = script.world;
  SimWorld sim(options);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < script.world; ++rank) {
    ranks.push_back(std::make_unique<Rank>(script, sim.fabric(rank)));
  }
  const auto result =
      sim.run([&](int rank) { return ranks[static_cast<size_t>(rank)]->advance(); });
  EXPECT_TRUE(result.all_done()) << "somebody hangs";
  Outcome outcome{.operations = result.operations};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    outcome.over.push_back(ranks[rank]->is_over());
    outcome.failures.push_back(ranks[rank]->check());
    EXPECT_TRUE(result.dead[rank] || ranks[rank]->is_over()) << "rank " << rank;
    if (!result.dead[rank]) outcome.last = std::max(outcome.last, ranks[rank]->ended());
  }
  return outcome;
}

bool can_run(Kind kind, const Placement& placement) {
  return kind != Kind::kHalving || placement.is_aligned();
}

Script random_script(uint64_t seed) {
  uint64_t state = seed * 1000003;
  const auto below = [&](uint64_t limit) { return static_cast<size_t>(mix64(++state) % limit); };
  Script script{.world = static_cast<int>(1 + below(8))};
  const size_t world = static_cast<size_t>(script.world), count = 1 + below(5);
  while (script.kinds.size() < count) {
    const Placement placement =
        below(2) ? Placement::even(8, world) : Placement(random_split(1 + below(12), world, seed));
    const Kind kind = static_cast<Kind>(below(kKinds));
    if (!can_run(kind, placement)) continue;
    script.kinds.push_back(kind);
    script.sums.emplace_back(placement, below(3) ? below(200) : below(3), seed + count);
  }
  return script;
}

TEST(CollectivesSim, DelaysReordersAndDoublesChangeNoBit) {
  for_each_seed(3000, [&](uint64_t seed) {
    SimOptions options{.seed = seed};
    options.link = {.delay_most = std::chrono::microseconds(mix64(seed) % 3000 + 5),
                    .duplicate = seed % 3 == 0 ? 0.3 : 0.0,
                    .reorder = seed % 2 == 0};
    // Also messages that wait for their receiver, from the first byte on.
    options.eager_bytes = seed % 4 == 0 ? 0 : 64 << 10;
    const Outcome outcome = run(random_script(seed), options);
    for (const auto& failures : outcome.failures) {
      for (const Failure& failure : failures) ADD_FAILURE() << failure.message;
    }
  });
}

Script one_operation(Kind kind, int world, size_t length, uint64_t seed) {
  Script script{.world = world, .kinds = {kind}};
  script.sums.emplace_back(Placement::even(8, static_cast<size_t>(world)), length, seed);
  return script;
}

// Dies at each of its transfers in turn, until it has no more.
size_t die_everywhere(Kind kind, int world, int victim, size_t length) {
  const Script script = one_operation(kind, world, length, 5);
  size_t failed = 0;
  for (uint64_t operation = 1; operation < 10000; ++operation) {
    SCOPED_TRACE(testing::Message()
                 << kNames[static_cast<int>(kind)] << ", " << world << " ranks, rank " << victim
                 << " dies at its transfer " << operation);
    SimOptions options{.seed = operation};
    options.faults = {{.rank = victim, .operation = operation}};
    const Outcome outcome = run(script, options);
    // Far before the deadline of one second: the death was noticed, not waited out.
    EXPECT_LT(outcome.last, Instant(milliseconds(100)));
    for (int rank = 0; rank < world; ++rank) {
      for (const Failure& failure : outcome.failures[static_cast<size_t>(rank)]) {
        ++failed;
        EXPECT_EQ(failure.kind, FailureKind::kPeerGone) << failure.message;
        EXPECT_EQ(failure.peer, victim) << failure.message;
        EXPECT_TRUE(failure.message.starts_with(kNames[static_cast<int>(kind)])) << failure.message;
        for (const std::string& part :
             {std::string(" step="), " rank=" + std::to_string(rank),
              " peer " + std::to_string(victim), std::string(" ms"), std::string(" bytes")}) {
          EXPECT_NE(failure.message.find(part), std::string::npos)
              << part << ": " << failure.message;
        }
      }
    }
    if (outcome.over[static_cast<size_t>(victim)] || testing::Test::HasFailure()) return failed;
  }
  ADD_FAILURE() << "no end of transfers";
  return failed;
}

class Deaths : public testing::TestWithParam<int> {};

TEST_P(Deaths, EverySurvivorNamesTheDeadRankInTime) {
  const Kind kind = static_cast<Kind>(GetParam());
  size_t failed = 0;
  for (const int world : {2, 3, 4, 8}) {
    if (!can_run(kind, Placement::even(8, static_cast<size_t>(world)))) continue;
    for (int victim = 0; victim < world; victim += world == 8 ? 3 : 1) {
      failed += die_everywhere(kind, world, victim, 100);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(failed, 10u);
}

INSTANTIATE_TEST_SUITE_P(Of, Deaths, testing::Range(0, kKinds),
                         [](const auto& test) { return std::string(kNames[test.param]); });

TEST(CollectivesSim, ADeathAmongSeveralInFlightIsNamedByAll) {
  for_each_seed(1000, [&](uint64_t seed) {
    const Script script = random_script(seed);
    if (script.world == 1) return;
    const int victim = static_cast<int>(mix64(seed) % static_cast<uint64_t>(script.world));
    SimOptions options{.seed = seed};
    options.faults = {{.rank = victim, .at = Instant(std::chrono::microseconds(seed % 200))}};
    const Outcome outcome = run(script, options);
    EXPECT_LT(outcome.last, Instant(milliseconds(100)));
    for (const auto& failures : outcome.failures) {
      for (const Failure& failure : failures) EXPECT_EQ(failure.peer, victim) << failure.message;
    }
  });
}

TEST(CollectivesSim, LostMessagesEndInAFailureAtTheDeadline) {
  size_t failed = 0;
  for_each_seed(500, [&](uint64_t seed) {
    SimOptions options{.seed = seed};
    options.link.drop = 0.05;
    const Outcome outcome = run(random_script(seed), options);
    EXPECT_LE(outcome.last, Instant(milliseconds(1010)));
    for (const auto& failures : outcome.failures) failed += !failures.empty();
  });
  if (std::getenv("STARLING_SIM_SEED") != nullptr) return;
  EXPECT_GT(failed, 100u);
}

TEST(CollectivesSim, AFrozenRankIsFoundByTheDeadline) {
  for (int kind = 0; kind < kKinds; ++kind) {
    SimOptions options{.seed = 3, .eager_bytes = 0};  // who sends waits for who receives
    options.faults = {
        {.rank = 1, .operation = 1, .freeze = true, .lasts = std::chrono::seconds(5)}};
    const Outcome outcome = run(one_operation(static_cast<Kind>(kind), 4, 1000, 1), options);
    size_t named = 0;
    for (const size_t rank : {0u, 2u, 3u}) {
      for (const Failure& failure : outcome.failures[rank]) {
        EXPECT_EQ(failure.kind, FailureKind::kDeadline) << failure.message;
        named += failure.peer == 1;
      }
    }
    EXPECT_GT(named, 0u) << kNames[kind];
  }
}

TEST(CollectivesSim, TheSameSeedIsTheSameRun) {
  const auto hash = [](uint64_t seed) {
    const Script script = random_script(12);
    SimWorld sim({.world = script.world, .seed = seed});
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int rank = 0; rank < script.world; ++rank) {
      ranks.push_back(std::make_unique<Rank>(script, sim.fabric(rank)));
    }
    sim.run([&](int rank) { return ranks[static_cast<size_t>(rank)]->advance(); });
    return sim.trace_hash();
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

}  // namespace
}  // namespace starling
