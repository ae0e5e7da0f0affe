// The product of gemm.h where many elements of a are zero: what relu leaves of activations and of
// gradients is half zeros, and often more. Those are skipped: a dense product can't be faster than
// the processor multiplies, this one has less to multiply.
//
// Sums are made in the order of gemm.h and have its bits, so that whoever multiplies may choose
// either way, by what it sees of a. (As long as b is finite: zeros times infinity are skipped too.)
#pragma once

#include "tensor/gemm.h"

namespace starling {

// Whether skipping a's zeros takes less time than gemm.h's way, in which each is multiplied. Counts
// them, if the shape is large enough that it might.
bool gemm_sparse_pays(const GemmShape& shape, const MatrixView& a);

// Floats of scratch that gemm_sparse needs; none for shapes for which it never pays.
size_t gemm_sparse_scratch_floats(const GemmShape& shape);

// As gemm(), for a shape for which it might pay.
void gemm_sparse(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch);

}  // namespace starling
