#include "engine/plan.h"

#include <algorithm>

#include "engine/lowering.h"

namespace starling {

Plan::Plan(const Graph& graph, const PlanOptions& options, PlanResources resources)
    : options_(options) {
  Lowering(*this, graph, resources).run();
}

void Plan::forward(const Frame& frame) {
  for (size_t i = 0; i < backward_begin_; ++i) kernels_[i]->run(frame);
}

void Plan::backward(const Frame& frame) {
  for (size_t i = backward_begin_; i < kernels_.size(); ++i) kernels_[i]->run(frame);
}

void Plan::backward(const Frame& frame, FunctionRef<void(int)> after) {
  for (size_t i = backward_begin_; i < kernels_.size(); ++i) {
    kernels_[i]->run(frame);
    after(static_cast<int>(i));
  }
}

int Plan::ready_after(const ParameterSpace& space, const Bucket& bucket) const {
  if (bucket.block_count == 0) return -1;
  const std::span<const Block> blocks =
      space.blocks().subspan(bucket.first_block, bucket.block_count);
  return *std::max_element(ready_after_.begin() + blocks.front().slice,
                           ready_after_.begin() + blocks.back().slice + 1);
}

}  // namespace starling
