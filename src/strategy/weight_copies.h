// Copies of small weights, one for each lane of all workers that share them: a lane computes with
// its own, and whoever updates weights writes all copies beside the weights themselves. So no core
// reads what another is about to write, where that pays (base/claim.h).
#pragma once

#include <span>
#include <vector>

#include "engine/executor.h"
#include "strategy/strategy.h"

namespace starling {

// Whether so many lanes, of all workers together, have copies.
bool has_weight_copies(const ParameterSpace& space, size_t lanes);

// The copies of a worker's lanes, for its executor; the worker updates `range`.
std::vector<LaneWeights> lane_weights(const ParameterSpace& space, BlockRange range,
                                      std::span<float* const> copies);

}  // namespace starling
