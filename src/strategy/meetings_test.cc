#include "strategy/meetings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <numeric>

#include "fabric/sim/sim.h"
#include "fabric/sim/sim_testing.h"

namespace starling {
namespace {

using std::chrono::microseconds;

constexpr size_t kFloats = 5;

struct Meeting {
  int partner;
  uint64_t number;
};

// A worker that makes steps of random length, rests now and then, and goes to its meetings.
class Worker {
 public:
  Worker(Fabric& fabric, std::deque<Meeting> meetings, uint64_t seed)
      : fabric_(fabric), dice_(seed), to_come_(std::move(meetings)) {
    for (float& weight : weights_) weight = static_cast<float>(dice_.below(64));
    learnt_ = sum();
    meetings_ = std::make_unique<Meetings>(fabric_, weights_);
  }

  bool advance() {
    if (meetings_->is_over() && to_come_.empty()) return true;
    if (!meetings_->status()) return true;
    if (meetings_->is_over()) {
      meetings_->order(to_come_.front().partner, to_come_.front().number);
      to_come_.pop_front();
    }
    if (fabric_.now() >= step_until_) take_step();
    const bool moved = meetings_->advance();
    fabric_.progress(std::min(step_until_, fabric_.now() + microseconds(moved ? 1 : 100)));
    return false;
  }

  double sum() const { return std::accumulate(weights_.begin(), weights_.end(), 0.0); }
  double learnt() const { return learnt_; }  // all that this worker has added by itself
  bool is_done() const { return meetings_->is_over() && to_come_.empty(); }
  bool has_failed() const { return !meetings_->status(); }
  uint64_t met() const { return meetings_->count(); }

 private:
  void take_step() {
    if (!rests_) {
      const auto added = static_cast<float>(dice_.below(8));
      weights_[dice_.below(kFloats)] += added;
      learnt_ += added;
      meetings_->look();
    }
    rests_ = dice_.below(4) == 0;
    meetings_->rest(rests_);
    step_until_ = fabric_.now() + microseconds(1 + dice_.below(400));
  }

  Fabric& fabric_;
  Dice dice_;
  std::deque<Meeting> to_come_;
  std::vector<float> weights_ = std::vector<float>(kFloats);
  std::unique_ptr<Meetings> meetings_;
  bool rests_ = false;
  double learnt_ = 0;
  Instant step_until_{};
};

TEST(Meetings, KeepWhatAllHaveLearntAndNobodyHangs) {
  uint64_t failures = 0, meetings = 0;
  constexpr uint64_t kSeeds = 3000;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    Dice dice(seed);
    const auto world = static_cast<int>(2 + dice.below(5));
    std::vector<std::deque<Meeting>> plan(static_cast<size_t>(world));
    const uint64_t count = dice.below(20);
    for (uint64_t number = 0; number < count; ++number) {
      const auto a = static_cast<int>(dice.below(static_cast<uint64_t>(world)));
      const auto next = 1 + dice.below(static_cast<uint64_t>(world) - 1);
      const int b =
          static_cast<int>((static_cast<uint64_t>(a) + next) % static_cast<uint64_t>(world));
      plan[static_cast<size_t>(a)].push_back({b, number});
      plan[static_cast<size_t>(b)].push_back({a, number});
    }
    SimOptions options{.world = world, .seed = seed};
    options.link = {.delay_most = microseconds(5 + dice.below(500))};
    options.eager_bytes = dice.below(2) == 0 ? 0 : 64 << 10;
    const bool dies = dice.below(3) == 0;
    if (dies) options.faults.push_back({.rank = 0, .at = Instant(microseconds(dice.below(3000)))});
    SimWorld sim(options);
    std::vector<std::unique_ptr<Worker>> workers(static_cast<size_t>(world));
    const auto outcome = sim.run([&](int rank) {
      std::unique_ptr<Worker>& worker = workers[static_cast<size_t>(rank)];
      if (!worker)
        worker = std::make_unique<Worker>(sim.fabric(rank), plan[static_cast<size_t>(rank)],
                                          seed + static_cast<uint64_t>(rank));
      return worker->advance();
    });
    ASSERT_TRUE(outcome.all_done()) << "somebody hangs: " << testing::PrintToString(outcome.done);
    double have = 0, learnt = 0;
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      if (outcome.dead[rank]) continue;
      have += workers[rank]->sum();
      learnt += workers[rank]->learnt();
      failures += workers[rank]->has_failed() ? 1 : 0;
      meetings += workers[rank]->met();
      EXPECT_TRUE(workers[rank]->is_done() || (dies && workers[rank]->has_failed()));
    }
    if (dies) return;
    EXPECT_NEAR(have, learnt, 1e-3 * learnt) << "averaging takes nothing away, and adds nothing";
  });
  if (std::getenv("STARLING_SIM_SEED") != nullptr) return;
  EXPECT_GT(meetings, 5 * kSeeds);
  EXPECT_GT(failures, kSeeds / 20);
}

// What two have after they met.
std::vector<std::vector<float>> met(std::vector<std::vector<float>> weights) {
  SimWorld sim({.world = 2, .seed = 1});
  std::vector<std::unique_ptr<Meetings>> meetings(2);
  const auto outcome = sim.run([&](int rank) {
    std::unique_ptr<Meetings>& own = meetings[static_cast<size_t>(rank)];
    if (!own) {
      own = std::make_unique<Meetings>(sim.fabric(rank), weights[static_cast<size_t>(rank)]);
      own->order(1 - rank, 7);
      own->rest(true);
    }
    own->advance();
    sim.fabric(rank).progress(sim.now() + microseconds(10));
    return own->is_over();
  });
  EXPECT_TRUE(outcome.all_done());
  return weights;
}

TEST(Meetings, TwoThatMeetComeTogether) {
  const auto weights = met({{0, 8, -4}, {4, 0, -2}});
  EXPECT_EQ(weights[0], (std::vector<float>{2, 4, -3}));
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Meetings, WhatIsNotFiniteDoesNotSpread) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInfinity = std::numeric_limits<float>::infinity();
  const auto weights = met({{0, kNan, -4, 1}, {4, 0, kInfinity, 1}});
  EXPECT_EQ(weights[0][0], 2);
  EXPECT_TRUE(std::isnan(weights[0][1]));
  EXPECT_EQ(weights[0][2], -4);
  EXPECT_EQ(weights[1], (std::vector<float>{2, 0, kInfinity, 1}));
}

}  // namespace
}  // namespace starling
