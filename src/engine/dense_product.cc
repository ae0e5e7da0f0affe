#include "engine/dense_product.h"

#include "tensor/gemm_bf16.h"

namespace starling {

GemmWay dense_product(Precision precision) {
  const GemmWay* const narrow = precision == Precision::kBf16 ? gemm_bf16() : nullptr;
  return narrow != nullptr ? *narrow : kGemm;
}

bool wants_rounded_operands(Precision precision) {
  return precision == Precision::kBf16 && gemm_bf16() == nullptr;
}

}  // namespace starling
