#include "train/optimizer_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "train/workers_testing.h"

namespace starling {
namespace {

constexpr size_t kKinds = 2;
constexpr int kWorkers = 3;
constexpr int kLost = 9;  // the name of one that is gone

ParameterSpace space_of_blocks() {
  ParameterSpace space;
  space.add("bias", {70}, {});
  space.add("weight", {20, 1000}, {});
  return space;
}

// What the optimizer keeps for the float at that offset.
float value(size_t kind, size_t offset) { return static_cast<float>(offset * kKinds + kind); }

void fill(OptimizerState& state, std::span<const Span> runs) {
  for (const Span& run : runs) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (size_t offset = run.begin; offset < run.end; ++offset)
        *state.at(kind, offset) = value(kind, offset);
    }
  }
}

bool is_filled(const OptimizerState& state, std::span<const Span> runs) {
  return std::all_of(runs.begin(), runs.end(), [&](const Span& run) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (size_t offset = run.begin; offset < run.end; ++offset) {
        if (*state.at(kind, offset) != value(kind, offset)) return false;
      }
    }
    return true;
  });
}

// What this worker had when the state was that of these owners.
OptimizerState part_of(const World& world, const Ownership& owners, size_t kinds = kKinds) {
  const auto at = std::find(owners.members().begin(), owners.members().end(), world.name());
  if (at == owners.members().end()) return OptimizerState(kinds);
  const std::vector<Span> runs = owners.kept_by(static_cast<size_t>(at - owners.members().begin()));
  OptimizerState state(kinds, runs);
  if (kinds > 0) fill(state, runs);
  return state;
}

std::vector<std::string> split_by_all(const std::vector<int>& before, int replicas,
                                      size_t kinds = kKinds) {
  const ParameterSpace space = space_of_blocks();
  return run_workers(kWorkers, [&](const std::shared_ptr<World>& world) {
    const Ownership owners(space, before, replicas), wanted(space, {0, 1, 2}, replicas);
    const OptimizerState own = part_of(*world, owners, kinds);
    const OptimizerState now = split_anew(*world, {owners, own}, wanted);
    const std::vector<Span> kept = wanted.kept_by(static_cast<size_t>(world->rank()));
    EXPECT_TRUE(kinds == 0 || is_filled(now, kept)) << "worker " << world->rank();
    const OptimizerState whole = gather_optimizer(*world, {owners, own});
    const std::vector<Span> all{{0, space.total_floats()}};
    EXPECT_TRUE(kinds == 0 || !world->is_chief() || is_filled(whole, all));
    EXPECT_TRUE(world->is_chief() || whole.bytes() == 0);
  });
}

TEST(OptimizerTransfer, EveryWorkerGetsItsPartFromWhoIsLeft) {
  for (const std::vector<int>& before : {std::vector<int>{0, 1, 2, kLost},
                                         {kLost, 0, 1, 2},
                                         {0, kLost, 1, 2},
                                         {0, 1, kLost, 2},
                                         {kLost, 0, kLost + 1, 1, kLost + 2, 2},
                                         {0, 1, 2}}) {
    for (const std::string& error : split_by_all(before, 1)) EXPECT_EQ(error, "");
  }
}

TEST(OptimizerTransfer, NewcomersGetTheirsToo) {
  for (const int replicas : {0, 1}) {
    for (const std::vector<int>& before : {std::vector<int>{0, 1}, {1}, {0, 2}}) {
      for (const std::string& error : split_by_all(before, replicas)) EXPECT_EQ(error, "");
    }
  }
}

TEST(OptimizerTransfer, WhatNobodyHasIsNamedByAll) {
  for (const std::string& error : split_by_all({0, kLost, kLost + 1, 1, 2}, 1)) {
    EXPECT_EQ(error,
              "of the 5 slices of the optimizer state these were lost: slice 2 with worker 9 and "
              "worker 10, which had the copy");
  }
  for (const std::string& error : split_by_all({0, kLost, 1, 2, kLost + 1}, 0)) {
    EXPECT_EQ(error,
              "of the 5 slices of the optimizer state these were lost: slice 2 with worker 9, "
              "slice 5 with worker 10 (strategy.replicas = 0 keeps no copy)");
  }
}

TEST(OptimizerTransfer, AnOptimizerWithoutStateLosesNothing) {
  for (const std::string& error : split_by_all({0, kLost, 1, 2}, 0, 0)) EXPECT_EQ(error, "");
}

TEST(OptimizerTransfer, BeforeTheFirstStepTheStateIsZero) {
  const ParameterSpace space = space_of_blocks();
  for (const std::string& error : run_workers(kWorkers, [&](const std::shared_ptr<World>& world) {
         const Ownership wanted(space, {0, 1, 2}, 1);
         const OptimizerState now = split_anew(*world, {Ownership(), OptimizerState(1)}, wanted);
         for (const Span& run : wanted.kept_by(static_cast<size_t>(world->rank())))
           EXPECT_EQ(*now.at(0, run.begin), 0);
       })) {
    EXPECT_EQ(error, "");
  }
}

TEST(OptimizerState, TakesOfValuesWhatItKeeps) {
  const std::vector<Span> runs{{4, 8}, {10, 12}};
  OptimizerState state(1, runs);
  state.take(0, 6, std::vector<float>{6, 7, 8, 9, 10});
  EXPECT_EQ(*state.at(0, 5), 0);
  EXPECT_EQ(*state.at(0, 6), 6);
  EXPECT_EQ(*state.at(0, 7), 7);
  EXPECT_EQ(*state.at(0, 10), 10);
  EXPECT_EQ(*state.at(0, 11), 0);
  EXPECT_THROW(state.at(0, 8), std::logic_error);
  EXPECT_EQ(state.bytes(), 6 * sizeof(float));
}

}  // namespace
}  // namespace starling
