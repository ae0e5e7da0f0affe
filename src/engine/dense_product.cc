#include "engine/dense_product.h"

#include "base/isa.h"
#include "tensor/gemm_bf16.h"

namespace starling {

DenseProduct dense_product(Precision precision) {
  if (precision == Precision::kBf16 && has_bf16_tiles())
    return {gemm_bf16_scratch_floats, gemm_bf16};
  return {gemm_scratch_floats, gemm};
}

bool wants_rounded_operands(Precision precision) {
  return precision == Precision::kBf16 && !has_bf16_tiles();
}

}  // namespace starling
