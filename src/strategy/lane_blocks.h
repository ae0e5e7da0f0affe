// Which blocks each lane of a worker updates.
#pragma once

#include "strategy/strategy.h"
#include "tensor/parameter_space.h"

namespace starling {

// Of the blocks that a worker updates, those of a lane. A few are lane 0's alone: waking the others
// would take longer.
BlockRange lane_blocks(const ParameterSpace& space, BlockRange range, int lane, int lanes);

}  // namespace starling
