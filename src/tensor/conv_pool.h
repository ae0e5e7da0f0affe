// A convolution of an image with few channels, a max pool of 2×2 behind it, and the relu between,
// in one pass: the convolution's outputs stay in registers, and only the pooled values and the
// winners' places are written. The way back makes the gradients of weights and bias from the
// pooled gradient alone, as each of its values concerns one place. 3×3 windows with stride 1; f32,
// channels-last, filters in multiples of 8, one thread, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling {

struct ConvPoolShape {
  int64_t rows, in_h, in_w, channels, filters;
  int64_t out_h, out_w;       // of the pool: 2 · out_h rows of the convolution are used
  int64_t pad_top, pad_left;  // of the convolution
};

size_t conv_pool_scratch_floats(const ConvPoolShape& shape);

// y[rows][out_h][out_w][filters]; where[] gets the winner's place in its 2×2 (first of equals).
// `weights` is [filters][channels][3][3]; `bias` may be null. Memory has little to do here: `soon`
// is asked for meanwhile, which the caller reads next and another core may have written.
void conv_pool_forward(const ConvPoolShape& shape, bool relu, const float* x, const float* weights,
                       const float* bias, float* y, uint8_t* where, float* scratch,
                       std::span<const float> soon = {});

// dw and db (which may be null) are added to when `accumulate`, else overwritten. With `relu`
// gradients pass only where y > 0 (y is read then, else may be null).
void conv_pool_backward(const ConvPoolShape& shape, bool relu, const float* x, const float* y,
                        const uint8_t* where, const float* dy, bool accumulate, float* dw,
                        float* db, float* scratch);

}  // namespace starling
