#include "tensor/gemm_bf16.h"

#include "base/isa.h"

namespace starling {

const GemmWay* gemm_bf16() {
  switch (bf16_products()) {
    case Bf16Products::kTiles:
      return &kGemmBf16Tiles;
    case Bf16Products::kPairs:
      return &kGemmBf16Pairs;
    case Bf16Products::kRounded:
      break;
  }
  return nullptr;
}

}  // namespace starling
