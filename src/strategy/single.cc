#include "strategy/single.h"

#include "strategy/weight_copies.h"

namespace starling {

SingleStrategy::SingleStrategy(Executor& executor, const ParameterSpace& space)
    : executor_(executor),
      blocks_(space.blocks().size()),
      merges_(executor, {{0, executor.options().shards}}) {
  const auto lanes = static_cast<size_t>(executor.lanes().count());
  for (size_t lane = 0; lane < lanes && has_weight_copies(space, lanes); ++lane)
    copies_.push_back(copy_memory_.emplace_back(space.total_floats()).data());
  executor.use_memory(
      {.weights = lane_weights(space, blocks(), copies_),
       .late = [this](size_t floats) { return late_areas_.emplace_back(floats).data(); }});
}

SingleStrategy::~SingleStrategy() { executor_.use_memory({}); }

Status SingleStrategy::exchange(const StepSize& step, Wishes&) {
  parts_ = {&merges_.of(step).plan, executor_.gradients(), 0, executor_.stack_lanes()};
  return {};
}

}  // namespace starling
