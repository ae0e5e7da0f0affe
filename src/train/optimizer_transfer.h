// How optimizer state that is split over workers (strategy/ownership.h) comes to where it is
// wanted: to its owners after a change of the world, and to the chief for a checkpoint. Each part
// is sent by who has it, once to each who wants it. All workers call these together, within a unit
// (World::agree): a worker that is lost meanwhile is a LostWorker. What there is stays as it is.
#pragma once

#include "cluster/world.h"
#include "strategy/ownership.h"
#include "train/optimizer_state.h"

namespace starling {

// The state as it lies: who of the workers, not all of whom may be left, had which part of it when
// it was split, and what this one has.
struct SplitOptimizer {
  const Ownership& owners;
  const OptimizerState& own;
};

// What this worker is to keep by `wanted`, whose members are those of the world. Throws run_error
// when a part was lost with its owner and who had the copy. Without owners it is zero: the state
// before the first step.
OptimizerState split_anew(World& world, const SplitOptimizer& split, const Ownership& wanted);

// The whole state on the chief, nothing on the others; errors as above.
OptimizerState gather_optimizer(World& world, const SplitOptimizer& split);

// The most bytes that one of so many workers keeps.
size_t split_optimizer_bytes(const ParameterSpace& space, size_t kinds, int workers, int replicas);

// All get the floats of every slice from who has it of those that are there: `whole` is the space,
// up to date in the slices that this worker keeps. Throws Error when one is lost.
void spread_slices(World& world, const Ownership& owners, std::span<float> whole);

}  // namespace starling
