// Products of matrices rounded to bf16, summed in f32, by the processor's own instructions for
// bf16, on one thread: c (+)= a · b, as gemm.h has it for f32. Operands come as f32 and are rounded
// while they are packed, so nobody keeps copies of them in bf16.
//
// Each element of c is summed over k in order: its bits depend neither on how the work is cut nor
// on the other shards that are multiplied with it. But each kind of instruction has bits of its
// own. None of them raises the processor's flags as other arithmetic does; where c is not finite,
// the overflow flag is raised in their stead.
#pragma once

#include "tensor/gemm.h"

namespace starling {

// Their scratch begins at a cache line.
extern const GemmWay kGemmBf16Pairs;  // dot products of pairs: needs AVX512_BF16
extern const GemmWay kGemmBf16Tiles;  // matrix tiles: needs AMX

// That which bf16_products() (base/isa.h) says; null where operands are to be rounded for gemm().
const GemmWay* gemm_bf16();

}  // namespace starling
