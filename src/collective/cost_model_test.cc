#include "collective/cost_model.h"

#include <gtest/gtest.h>

#include <atomic>

#include "collective/collective_testing.h"
#include "fabric/fabric_testing.h"
#include "fabric/sim/sim.h"

namespace starling {
namespace {

using enum AllReduceAlgorithm;

TEST(CostModel, TheRingIsOnlyForInexactSums) {
  for (const size_t workers : {2u, 3u, 8u}) {
    for (const size_t bytes : {4u, 1u << 20, 1u << 28}) {
      EXPECT_NE(choose_all_reduce(bytes, Placement::even(16, workers), {}, true), kRing);
    }
  }
  // Many partials make the exact way dear: the ring sends each worker's sum once.
  EXPECT_EQ(choose_all_reduce(1 << 28, Placement::even(16, 3), {}, false), kRing);
}

TEST(CostModel, HalvingDoublingNeedsAlignedShards) {
  const LinkCosts quick{.latency_s = 1e-6, .message_s = 1e-5, .byte_s = 1e-9};
  EXPECT_EQ(choose_all_reduce(1 << 20, Placement::even(32, 32), quick, true), kHalvingDoubling);
  EXPECT_EQ(choose_all_reduce(1 << 20, Placement::even(32, 31), quick, true), kDirect);
}

TEST(CostModel, SmallSumsTakeTheFewestRounds) {
  EXPECT_EQ(choose_all_reduce(64, Placement::even(8, 8), {}, true), kDirect);
  EXPECT_EQ(choose_all_reduce(64, Placement::even(8, 8), {}, false), kDirect);
}

TEST(CostModel, OneWorkerCostsNothing) {
  EXPECT_EQ(all_reduce_seconds(kDirect, 1 << 20, Placement::even(4, 1), {}), 0);
}

TEST(CostModel, FitsALineToTimes) {
  const std::vector<LinkTime> times = {{0, 1e-5}, {1000, 1.1e-5}, {1000000, 1.01e-3}};
  const LinkCosts costs = fit_costs(times);
  EXPECT_NEAR(costs.latency_s, 1e-5, 1e-9);
  EXPECT_NEAR(costs.byte_s, 1e-9, 1e-12);
}

TEST(CostModel, WhatWasMeasuredIsTheSameOnAllRanks) {
  for (const int world : {1, 2, 5}) {
    SimWorld sim({.world = world,
                  .link = {.delay_least = std::chrono::microseconds(40),
                           .delay_most = std::chrono::microseconds(40),
                           .bytes_per_second = 1e9},
                  .eager_bytes = 4 << 20});
    const auto outcome = sim.run_blocking([&](int, Fabric& fabric) {
      Collectives all(fabric,
                      std::make_shared<Placement>(Placement::even(8, static_cast<size_t>(world))));
      const Result<LinkCosts> costs = all.measure_costs();
      ASSERT_TRUE(costs) << costs.failure().message;
      if (world == 1) return;
      EXPECT_NEAR(costs.value().latency_s, 40e-6, 1e-6);
      EXPECT_NEAR(costs.value().byte_s, 1e-9, 1e-11);
      EXPECT_EQ(all.options().costs.byte_s, costs.value().byte_s);
    });
    EXPECT_TRUE(outcome.all_done());
  }
}

TEST(CostModel, ASlowLinkIsMeasuredWithFewMessages) {
  SimWorld sim({.world = 3,
                .link = {.delay_least = std::chrono::milliseconds(10),
                         .delay_most = std::chrono::milliseconds(10),
                         .bytes_per_second = 1e6},
                .eager_bytes = 4 << 20});
  const auto outcome = sim.run_blocking([&](int, Fabric& fabric) {
    Collectives all(fabric, std::make_shared<Placement>(Placement::even(8, 3)));
    const Instant began = fabric.now();
    const Result<LinkCosts> costs = all.measure_costs();
    ASSERT_TRUE(costs) << costs.failure().message;
    EXPECT_NEAR(costs.value().latency_s, 10e-3, 1e-4);
    EXPECT_NEAR(costs.value().byte_s, 1e-6, 1e-8);
    // For each of two links 8 small messages and one of 64 KiB, there and back.
    EXPECT_LT(fabric.now() - began, std::chrono::milliseconds(2 * (9 * 20 + 2 * 66) + 100));
  });
  EXPECT_TRUE(outcome.all_done());
}

TEST(CostModel, MeasuringEndsWhenAViewIsMade) {
  SimWorld sim({.world = 3});
  std::atomic<bool> interrupted{false};
  const auto outcome = sim.run_blocking([&](int rank, Fabric& fabric) {
    Collectives all(fabric, std::make_shared<Placement>(Placement::even(8, 3)),
                    {.interrupt = &interrupted});
    const Instant began = fabric.now();
    if (rank == 2) {  // is there, and takes no part
      interrupted = true;
      while (fabric.now() < began + std::chrono::seconds(5))
        fabric.progress(began + std::chrono::seconds(5));
      return;
    }
    const Result<LinkCosts> costs = all.measure_costs();
    ASSERT_FALSE(costs);
    EXPECT_EQ(costs.failure().kind, FailureKind::kStaleView) << costs.failure().message;
    EXPECT_LT(fabric.now() - began, std::chrono::seconds(1));
  });
  EXPECT_TRUE(outcome.all_done());
}

TEST(CostModel, ARankThatDiesWhileMeasuringIsNamed) {
  SimOptions options{.world = 3};
  options.faults = {{.rank = 2, .operation = 5}};
  SimWorld sim(options);
  const auto outcome = sim.run_blocking([&](int, Fabric& fabric) {
    Collectives all(fabric, std::make_shared<Placement>(Placement::even(8, 3)));
    const Result<LinkCosts> costs = all.measure_costs();
    ASSERT_FALSE(costs);
    EXPECT_EQ(costs.failure().peer, 2) << costs.failure().message;
  });
  EXPECT_TRUE(outcome.all_done());
}

}  // namespace
}  // namespace starling
