// LateGradients: computes the late gradients of a step (engine/late_layout.h) from the operands
// that its shards have left. Lanes call it at the same time.
#pragma once

#include <vector>

#include "engine/late_layout.h"
#include "starling/precision.h"
#include "tensor/buffer.h"

namespace starling {

class LateGradients {
 public:
  // Layout and area outlive this.
  LateGradients(const LateLayout& layout, Precision precision, float* area, int lanes);

  const LateLayout& layout() const { return layout_; }
  float* area() const { return area_; }
  size_t bytes() const;  // of the area, and of memory of lanes

  // Elements first … last − 1 of a slice's gradient.
  struct Piece {
    size_t first = 0, last = 0;
    const float* at = nullptr;
  };
  // Whole rows of the gradient, from that of element `first` on: as many as are computed at a time,
  // which is a block at least, or up to that of element `last` − 1. They lie in memory of the lane
  // until its next call.
  Piece compute(int lane, const LateProduct& product, size_t first, size_t last);

 private:
  const LateLayout& layout_;
  const Precision precision_;
  float* const area_;
  std::vector<Buffer<float>> scratch_;  // of each lane
};

}  // namespace starling
