// BlockGradients: the gradient of one block after another, on one lane of a step, as arrays whose
// sum along the tree it is: the parts that the strategy gives, where they lie; their sum, where
// registers can't hold so many; or what is computed only now (engine/late_gradients.h).
#pragma once

#include <array>
#include <span>

#include "engine/late_gradients.h"
#include "strategy/strategy.h"
#include "tensor/buffer.h"

namespace starling {

struct BlockGradient {
  std::span<const float* const> parts;  // 1 to kTreeLeavesInRegisters
  uint32_t claimed = 0;                 // bit i: others write part i next (base/claim.h)
};

class BlockGradients {
 public:
  // Of the blocks of a lane, in order, up to `end`. `late` may be null.
  BlockGradients(const ParameterSpace& space, const GradientParts& parts, LateGradients* late,
                 int lane, size_t end);

  // Valid until the next call.
  BlockGradient of(size_t block);

 private:
  const float* late_gradient(const LateProduct& product, const Block& block);

  const ParameterSpace& space_;
  const GradientParts& parts_;
  LateGradients* const late_;
  const int lane_;
  const size_t end_;
  const bool in_registers_;
  const uint32_t claimed_;
  size_t piece_slice_ = 0;
  LateGradients::Piece piece_;  // of that slice
  std::array<const float*, kMaxShards> at_;
  alignas(kAlignment) std::array<float, kBlockElements> sum_;  // stays in the nearest cache
};

}  // namespace starling
