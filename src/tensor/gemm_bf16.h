// Products of matrices rounded to bf16, summed in f32, by the processor's matrix tiles (AMX), on
// one thread: c (+)= a · b, as gemm.h has it for f32. Operands come as f32 and are rounded while
// they are packed, so nobody keeps copies of them in bf16.
//
// Each element of c is summed over k in order: its bits depend neither on how the work is cut nor
// on the other shards that are multiplied with it. Tiles do not raise the processor's flags as
// other arithmetic does; where c is not finite, the overflow flag is raised in their stead.
#pragma once

#include "tensor/gemm.h"

namespace starling {

// Floats of scratch that gemm_bf16 needs for this shape.
size_t gemm_bf16_scratch_floats(const GemmShape& shape);

// As gemm(). Needs has_bf16_tiles() (base/isa.h), and scratch that begins at a cache line.
void gemm_bf16(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
               float* c, float* scratch);

}  // namespace starling
