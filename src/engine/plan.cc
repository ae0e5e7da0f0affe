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

int Plan::bucket_ready_after(const ParameterSpace& space, size_t first_block,
                             size_t last_block) const {
  int ready = -1;
  for (size_t block = first_block; block < last_block; ++block) {
    ready = std::max(ready, ready_after_[space.blocks()[block].slice]);
  }
  return ready;
}

}  // namespace starling
