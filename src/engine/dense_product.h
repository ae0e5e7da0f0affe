// How dense layers multiply: by our own products (tensor/gemm.h), of matrices that are rounded to
// bf16 by the product itself (tensor/gemm_bf16.h) where the processor has tiles of them.
#pragma once

#include "starling/precision.h"
#include "tensor/gemm.h"

namespace starling {

struct DenseProduct {
  size_t (*scratch_floats)(const GemmShape& shape);
  void (*multiply)(const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                   bool accumulate, float* c, float* scratch);

  void operator()(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
                  float* c, float* scratch) const {
    multiply(shape, a, b, accumulate, c, scratch);
  }
};
DenseProduct dense_product(Precision precision);

// Whether its operands have to be rounded to bf16 before.
bool wants_rounded_operands(Precision precision);

}  // namespace starling
