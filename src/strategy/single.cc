#include "strategy/single.h"

namespace starling {

SingleStrategy::SingleStrategy(Executor& executor, size_t blocks)
    : executor_(executor),
      blocks_(blocks),
      placement_{{0, executor.options().shards}},
      plans_(executor) {}

Status SingleStrategy::exchange(int64_t samples) {
  parts_ = {&plans_.plan(samples, placement_), executor_.gradients()};
  return {};
}

}  // namespace starling
