#include "strategy/single.h"

namespace starling {

SingleStrategy::SingleStrategy(Executor& executor, size_t blocks)
    : executor_(executor), blocks_(blocks), merges_(executor, {{0, executor.options().shards}}) {}

Status SingleStrategy::exchange(const StepSize& step, Wishes&) {
  parts_ = {&merges_.of(step).plan, executor_.gradients()};
  return {};
}

}  // namespace starling
