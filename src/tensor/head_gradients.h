// Both gradients of a dense layer with few units, in one pass: dw (+)= dzᵀ · x and dx = dz · w.
//
// As two products (gemm.h) each would walk over all inputs to multiply a handful of numbers at
// every stop: what is loaded and stored takes as long as the products. Here a column of x, w, dw
// and dx is in registers once, for all rows and units. The bits are those of the two products.
#pragma once

#include <cstdint>

namespace starling {

struct HeadShape {
  int64_t rows, in, units;
};

// Whether it is for such a layer: few units and rows, many inputs.
bool head_gradients_pay(const HeadShape& shape);

// `x` is rows × in, `w` units × in, `dz` rows × units; all row-major, without gaps, and finite
// where the bits are to be those of products that skip zeros. `dw` is overwritten, or added to with
// `accumulate`; `dx` is overwritten. Neither overlaps anything.
struct HeadGradients {
  const float* x;
  const float* w;
  const float* dz;
  float* dw;
  float* dx;
};
void head_gradients(const HeadShape& shape, const HeadGradients& to, bool accumulate);

}  // namespace starling
