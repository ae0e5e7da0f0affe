#include "strategy/balancer.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

constexpr int kShards = 16;
constexpr StepSize kStep{.samples = 160, .batch = 160};

std::vector<bool> all(size_t workers) { return std::vector<bool>(workers, true); }

std::vector<int> counts(std::span<const ShardRange> placement) {
  std::vector<int> found;
  for (const ShardRange& range : placement) found.push_back(range.size());
  return found;
}

// Workers of these speeds make so many steps.
void run(Balancer& balancer, const std::vector<double>& shard_seconds, uint64_t steps) {
  for (uint64_t step = 0; step < steps; ++step) {
    std::vector<double> seconds(kShards, 0.0);
    for (size_t w = 0; w < shard_seconds.size(); ++w) {
      const ShardRange range = balancer.placement()[w];
      seconds[static_cast<size_t>(range.begin)] = range.size() * shard_seconds[w];
    }
    balancer.add(kStep, seconds);
  }
}

// Until it is due; false if that does not come.
bool wait_until_due(Balancer& balancer, const std::vector<double>& shard_seconds) {
  for (uint64_t step = 0; step < 2 * Balancer::kMostStretches && !balancer.is_due(); ++step)
    run(balancer, shard_seconds, 1);
  return balancer.is_due();
}

TEST(Balancer, FollowsSpeedAndBack) {
  Balancer balancer(Balance::kSpeed, kShards);
  EXPECT_EQ(counts(balancer.begin(1, all(4))), (std::vector<int>{4, 4, 4, 4}));
  run(balancer, {1, 1, 1, 1}, 3 * Balancer::kLeastStretches);
  EXPECT_FALSE(balancer.is_due());
  run(balancer, {1, 1, 4, 1}, Balancer::kLeastStretches);
  EXPECT_TRUE(balancer.is_due()) << "one look is enough";
  EXPECT_EQ(counts(balancer.begin(1, all(4))), (std::vector<int>{5, 5, 1, 5}));
  run(balancer, {1, 1, 4, 1}, 10 * Balancer::kLeastStretches);
  EXPECT_FALSE(balancer.is_due());
  EXPECT_DOUBLE_EQ(balancer.shard_seconds()[2], 4);
  EXPECT_TRUE(wait_until_due(balancer, {1, 1, 1, 1}));
  EXPECT_EQ(counts(balancer.begin(1, all(4))), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(balancer.changes(), 2u);
}

TEST(Balancer, WhoOnlyServesHasNoShardsAndIsNotMeasured) {
  Balancer balancer(Balance::kSpeed, kShards);
  const std::vector<bool> computes{true, false, true, false};
  EXPECT_EQ(counts(balancer.begin(1, computes)), (std::vector<int>{8, 0, 8, 0}));
  std::vector<double> seconds(kShards, 0.0);
  for (uint64_t step = 0; step < Balancer::kLeastStretches; ++step) {
    seconds[0] = 8;
    seconds[8] = 24;
    balancer.add(kStep, seconds);
  }
  EXPECT_EQ(std::vector<double>(balancer.shard_seconds().begin(), balancer.shard_seconds().end()),
            (std::vector<double>{1, 0, 3, 0}));
  ASSERT_TRUE(balancer.is_due());
  EXPECT_EQ(counts(balancer.begin(1, computes)), (std::vector<int>{12, 0, 4, 0}));
}

TEST(Balancer, LooksOnlyNowAndThen) {
  Balancer balancer(Balance::kSpeed, kShards);
  balancer.begin(1, all(2));
  for (uint64_t step = 1; step <= 3 * Balancer::kLeastStretches; ++step) {
    EXPECT_EQ(balancer.add(kStep, std::vector<double>(kShards, 1.0)),
              step % Balancer::kLeastStretches == 0);
  }
}

// Now the one is slow for 20 steps, now the other.
TEST(Balancer, WhereSpeedsWaverItTakesItsTime) {
  Balancer balancer(Balance::kSpeed, kShards);
  balancer.begin(1, all(2));
  for (int turn = 0; turn < 500; ++turn) {
    for (int step = 0; step < 20; ++step) {
      run(balancer, turn % 2 == 0 ? std::vector<double>{1, 2} : std::vector<double>{2, 1}, 1);
      if (balancer.is_due()) balancer.begin(1, all(2));
    }
  }
  EXPECT_GE(balancer.changes(), 1u);
  EXPECT_LE(balancer.changes(), 100u) << "in 10,000 steps";
}

// Steps of a fifth of a millisecond, of which a neighbour disturbs ten now and then.
TEST(Balancer, ShortStepsAreLookedAtTogether) {
  constexpr double kShard = 0.2e-3 / 8;
  Balancer balancer(Balance::kSpeed, kShards);
  balancer.begin(1, all(2));
  for (int turn = 0; turn < 200; ++turn) {
    run(balancer, {kShard, kShard}, 50);
    run(balancer, {kShard, 1.3 * kShard}, 10);
    EXPECT_FALSE(balancer.is_due()) << turn;
  }
  run(balancer, {kShard, 4 * kShard}, 200);
  EXPECT_TRUE(balancer.is_due()) << "what lasts a tenth of a second is found";
}

TEST(Balancer, ANewViewBeginsEvenly) {
  Balancer balancer(Balance::kSpeed, kShards);
  balancer.begin(1, all(4));
  run(balancer, {1, 1, 4, 1}, Balancer::kLeastStretches);
  ASSERT_TRUE(balancer.is_due());
  EXPECT_EQ(counts(balancer.begin(2, all(2))), (std::vector<int>{8, 8}));
  EXPECT_FALSE(balancer.is_due());
  EXPECT_EQ(balancer.changes(), 0u);
}

TEST(Balancer, EvenStaysEven) {
  Balancer balancer(Balance::kEven, kShards);
  balancer.begin(1, all(2));
  run(balancer, {1, 9}, Balancer::kLeastStretches);
  EXPECT_FALSE(balancer.is_due());
  EXPECT_DOUBLE_EQ(balancer.shard_seconds()[1], 9) << "but is measured";
}

}  // namespace
}  // namespace starling
