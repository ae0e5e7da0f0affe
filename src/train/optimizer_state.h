// OptimizerState: what an optimizer keeps per weight (first moment, second moment), each kind in an
// array over runs of the parameter space: over all of it, or over what one worker keeps. No threads
// of its own; lanes may use different floats at the same time.
#pragma once

#include <span>
#include <vector>

#include "collective/slices.h"
#include "tensor/buffer.h"

namespace starling {

class OptimizerState {
 public:
  explicit OptimizerState(size_t kinds = 0) : kinds_(kinds) {}
  // Zero, over runs that don't overlap.
  OptimizerState(size_t kinds, std::span<const Span> runs);

  // An array of each kind.
  void add_run(Span floats, std::vector<Buffer<float>> arrays);

  size_t kinds() const { return kinds_; }
  size_t bytes() const;
  // The float at `offset` of the space, of that kind; those after it follow, to the end of the run.
  // Throws logic_error when it is not kept.
  float* at(size_t kind, size_t offset);
  const float* at(size_t kind, size_t offset) const;
  // Of values that belong at `offset`, those that are kept.
  void take(size_t kind, size_t offset, std::span<const float> values);

 private:
  struct Run {
    Span floats;
    std::vector<Buffer<float>> arrays;  // by kind
  };
  size_t kinds_;
  std::vector<Run> runs_;
};

}  // namespace starling
