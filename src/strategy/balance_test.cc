#include "strategy/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/function_ref.h"

namespace starling {
namespace {

using Counts = std::vector<int>;

// Calls use(counts) with all ways to share the shards.
void for_all(int workers, int shards, Counts& counts, FunctionRef<void(const Counts&)> use) {
  if (workers == 1) {
    counts.push_back(shards);
    use(counts);
    counts.pop_back();
    return;
  }
  for (int own = 1; own <= shards - workers + 1; ++own) {
    counts.push_back(own);
    for_all(workers - 1, shards - own, counts, use);
    counts.pop_back();
  }
}

std::vector<double> random_seconds(std::mt19937_64& random, int workers, double spread) {
  std::uniform_real_distribution<double> exponent(0, std::log(spread));
  std::vector<double> seconds;
  for (int w = 0; w < workers; ++w) seconds.push_back(1e-3 * std::exp(exponent(random)));
  return seconds;
}

TEST(Balance, AWorkerThatIsFourTimesSlowerHasAQuarter) {
  EXPECT_EQ(balance_shards(std::vector<double>{1, 1, 1, 1}, 16), (Counts{4, 4, 4, 4}));
  EXPECT_EQ(balance_shards(std::vector<double>{1, 4, 1, 1}, 16), (Counts{5, 1, 5, 5}));
  EXPECT_EQ(balance_shards(std::vector<double>{1, 4, 1, 1}, 65), (Counts{20, 5, 20, 20}));
  EXPECT_EQ(balance_shards(std::vector<double>{1e6, 1}, 8), (Counts{1, 7}));
  EXPECT_EQ(balance_shards(std::vector<double>{3, 1, 2}, 3), (Counts{1, 1, 1}));
  EXPECT_EQ(balance_shards(std::vector<double>{2}, 5), Counts{5});
}

TEST(Balance, NoOtherWayIsFaster) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const int workers = 1 + static_cast<int>(random() % 4);
    const int shards = workers + static_cast<int>(random() % 10);
    const std::vector<double> seconds = random_seconds(random, workers, 10);
    const double found = slowest_seconds(balance_shards(seconds, shards), seconds);
    Counts counts;
    for_all(workers, shards, counts,
            [&](const Counts& other) { EXPECT_LE(found, slowest_seconds(other, seconds)); });
  }
}

// With shards that can be cut at will all are done at the same moment.
TEST(Balance, NobodyIsMoreThanAShardOfTheSlowestLaterThanIdeal) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const int workers = 1 + static_cast<int>(random() % 32);
    const int shards = workers + static_cast<int>(random() % 200);
    const std::vector<double> seconds = random_seconds(random, workers, 100);
    double speed = 0;
    for (const double s : seconds) speed += 1 / s;
    const double ideal = shards / speed;
    const double shard = *std::max_element(seconds.begin(), seconds.end());
    const Counts counts = balance_shards(seconds, shards);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), shards);
    for (size_t w = 0; w < counts.size(); ++w) {
      EXPECT_GE(counts[w], 1);
      EXPECT_LE(counts[w] * seconds[w], (ideal + shard) * (1 + 1e-12));
    }
  }
}

// `steps` alike.
std::optional<Counts> better(const Counts& counts, const std::vector<double>& seconds,
                             int steps = 4) {
  std::vector<double> rows;
  for (int step = 0; step < steps; ++step) rows.insert(rows.end(), seconds.begin(), seconds.end());
  return better_balance(counts, {rows, counts.size()});
}

TEST(Balance, ASmallGainIsNotWorthAChange) {
  const Counts even{8, 8};
  EXPECT_FALSE(better(even, {1, 1}));
  // 9 and 7 shards would take 9 instead of 9.12.
  EXPECT_FALSE(better(even, {1, 1.14}));
  EXPECT_EQ(better(even, {1, 1.25}), (Counts{9, 7}));
  EXPECT_EQ(better(Counts{5, 1, 5, 5}, {1, 1, 1, 1}), (Counts{4, 4, 4, 4}));
}

TEST(Balance, FiguresThatSayNothingChangeNothing) {
  const Counts even{8, 8};
  EXPECT_FALSE(better(even, {0, 1}));
  EXPECT_FALSE(better(even, {1, std::nan("")}));
  EXPECT_FALSE(better(even, {1, INFINITY}));
}

TEST(Balance, WhatIsSlowForAMomentOnlyStaysAsItIs) {
  const Counts even{8, 8};
  const std::vector<double> once = {1, 1, 1, 50, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_FALSE(better_balance(even, {once, 2}));
  const std::vector<double> at_the_end = {1, 1, 1, 1, 1, 1, 1, 4, 1, 4, 1, 4};
  EXPECT_FALSE(better_balance(even, {at_the_end, 2}));
  const std::vector<double> throughout = {1, 1, 1, 4, 1, 4, 1, 1, 1, 4, 1, 4};
  EXPECT_TRUE(better_balance(even, {throughout, 2}));
}

// A worker has a cost beside that of its shards, and all of it is noisy: whatever is measured, the
// placement comes to rest.
TEST(Balance, ComesToRest) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> noise(0.8, 1.25), cost(0, 20);
  for (int round = 0; round < 200; ++round) {
    const int workers = 2 + static_cast<int>(random() % 7);
    const std::vector<double> speeds = random_seconds(random, workers, 8);
    const double fixed = cost(random);
    Counts counts(static_cast<size_t>(workers), 64 / workers);
    counts[0] += 64 % workers;
    int changes = 0;
    for (int look = 0; look < 50; ++look) {
      std::vector<double> rows;
      for (int step = 0; step < 16; ++step) {
        for (size_t w = 0; w < counts.size(); ++w)
          rows.push_back(speeds[w] * (1 + fixed / counts[w]) * noise(random));
      }
      if (const auto found = better_balance(counts, {rows, counts.size()})) {
        counts = *found;
        ++changes;
      }
    }
    EXPECT_LE(changes, 8) << "round " << round << ", fixed cost " << fixed;
  }
}

// 16 shards of 40 samples have 2 or 3 of them.
TEST(Balance, AShardIsOneOfAverageSize) {
  const StepSize step{.samples = 80, .batch = 40};
  EXPECT_DOUBLE_EQ(seconds_per_shard(8, step, {0, 16}, 16), 0.5);
  EXPECT_DOUBLE_EQ(seconds_per_shard(2, step, {0, 1}, 16), 2.0 * 40 / (2 * 16));
  EXPECT_DOUBLE_EQ(seconds_per_shard(3, step, {1, 2}, 16), 3.0 * 40 / (3 * 16));
  EXPECT_EQ(seconds_per_shard(1, StepSize::of_batch(4), {0, 1}, 16), 0);
}

}  // namespace
}  // namespace starling
