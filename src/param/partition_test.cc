#include "param/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace starling {
namespace {

using testing::ElementsAre;

TEST(Speeds, AreTheMedianOfTheLastFew) {
  Speeds speeds;
  EXPECT_EQ(speeds.of(3), 0);
  speeds.add(3, 10, 0.1);
  EXPECT_DOUBLE_EQ(speeds.of(3), 100);
  speeds.add(3, 10, 10);
  EXPECT_DOUBLE_EQ(speeds.of(3), 100) << "of two the faster";
  for (int i = 0; i < 3; ++i) speeds.add(3, 10, 0.1);
  EXPECT_DOUBLE_EQ(speeds.of(3), 100);
  speeds.add(3, 10, 10);
  speeds.add(3, 10, 10);
  EXPECT_DOUBLE_EQ(speeds.of(3), 100);
  speeds.add(3, 10, 10);
  EXPECT_DOUBLE_EQ(speeds.of(3), 1) << "what lasts";
}

TEST(Speeds, WhatWasKnownCountsUntilItIsAnother) {
  Speeds speeds;
  speeds.know(0, 50);
  speeds.know(1, 0);
  EXPECT_EQ(speeds.of(0), 50);
  EXPECT_EQ(speeds.of(1), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(speeds.of(0), 50);
    speeds.add(0, 1, 1);
  }
  EXPECT_EQ(speeds.of(0), 1);
}

TEST(Speeds, FiguresThatSayNothingAreIgnored) {
  Speeds speeds;
  for (const double seconds : {0.0, -1.0, double{NAN}, double{INFINITY}}) speeds.add(0, 5, seconds);
  speeds.add(0, 0, 1);
  speeds.know(0, NAN);
  EXPECT_EQ(speeds.of(0), 0);
  speeds.add(1, 6, 1);
  speeds.add(2, 2, 1);
  EXPECT_THAT(speeds.of_all(std::vector{1, 2, 0}), ElementsAre(6, 2, 4));
  EXPECT_THAT(Speeds().of_all(std::vector{1, 2}), ElementsAre(1, 1));
}

TEST(Partition, WholePartsAddUpAndAreNearlyProportional) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> figures;
    for (uint64_t n = 1 + random() % 8; n > 0; --n)
      figures.push_back(1e-3 * static_cast<double>(1 + random() % 100'000));
    const uint64_t total = random() % 5000;
    const std::vector<uint64_t> parts = whole_parts(total, figures);
    const double sum = std::accumulate(figures.begin(), figures.end(), 0.0);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), uint64_t{0}), total);
    for (size_t i = 0; i < parts.size(); ++i) {
      const double exact = static_cast<double>(total) * figures[i] / sum;
      EXPECT_NEAR(static_cast<double>(parts[i]), exact, 1 + 1e-6);
    }
  }
}

TEST(Partition, LeasesAreOfOneSampleAtLeastAndOfABatchAtMost) {
  Speeds speeds;
  speeds.know(0, 1e9);
  speeds.know(1, 1e-9);
  const Partition partition({.workers = {0, 1}, .samples = 9, .batch = 40}, speeds);
  EXPECT_EQ(partition.lease(0), 40u);
  EXPECT_EQ(partition.lease(1), 1u);
}

TEST(Partition, ABatchIsOfThoseThatAreWaitedFor) {
  Speeds speeds;
  speeds.know(0, 100);
  speeds.know(1, 150);
  speeds.know(2, 50);
  speeds.know(3, 5);
  const Partition partition({.workers = {0, 1, 2, 3}, .samples = 9, .batch = 60, .spare = 1},
                            speeds);
  EXPECT_EQ(partition.lease(0), 20u);
  EXPECT_EQ(partition.lease(1), 30u);
  EXPECT_EQ(partition.lease(2), 10u);
  EXPECT_EQ(partition.lease(3), 10u) << "or it would come before one of the others";
}

TEST(Partition, WhoIsLeftAloneHasABatch) {
  Speeds speeds;
  speeds.know(0, 90);
  speeds.know(1, 10);
  Partition partition(
      {.kind = PartitionKind::kWeighted, .workers = {0, 1}, .samples = 1000, .batch = 40}, speeds);
  EXPECT_EQ(partition.lease(1), 4u);
  partition.lend(0, 900);
  EXPECT_EQ(partition.lease(0), 0u);
  EXPECT_EQ(partition.lease(1), 40u);
}

TEST(Partition, ASharesLastLeaseIsWhatIsLeftOfIt) {
  Partition partition(
      {.kind = PartitionKind::kEqual, .workers = {4, 7}, .samples = 15, .batch = 10}, {});
  EXPECT_EQ(partition.lease(4), 5u);
  partition.lend(4, 5);
  EXPECT_EQ(partition.lease(4), 3u);
  partition.lend(4, 3);
  EXPECT_EQ(partition.lease(4), 0u);
  partition.give_back(4, 3);
  EXPECT_EQ(partition.lease(4), 3u);
  EXPECT_EQ(partition.lease(7), 5u);
}

}  // namespace
}  // namespace starling
