// Products of f32 matrices on one thread, for dense layers: c (+)= a · b.
//
// oneDNN's product (2.6.3) wants weights in a layout of its own, which costs a copy after every
// update; on AVX2 it packs them line by line; it can't join the gradients of shards; and its calls
// cost more than the products of a small model. Here b is packed strip by strip while the next
// strip is on its way from memory, or not at all when it would be used only a few times.
//
// Each element of c is summed over k in order, in blocks of a fixed length: its bits depend neither
// on the vector width nor on the other shards that are multiplied with it.
//
// Where many elements of a are zero they are skipped (gemm_sparse.h), with the same bits as long as
// b is finite.
#pragma once

#include <cstddef>
#include <cstdint>

namespace starling {

// A matrix in memory; element (i, j) is at data[i · row_stride + j · column_stride], and one of the
// strides is 1.
struct MatrixView {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};

struct GemmShape {
  int64_t m, n, k;  // c is m × n, summed over k
  // How many shards of equal size lie stacked in the rows of a and c, or along k (a power of two;
  // their sums are joined along the shard tree). The bits are those of one product per shard.
  int64_t row_shards = 1;
  int64_t depth_shards = 1;
};

// The longest stretch of k, of a shard, that depth_shards > 1 allows.
inline constexpr int64_t kGemmShardDepth = 320;

// Floats of scratch that gemm needs for this shape; never fewer for more rows of a.
size_t gemm_scratch_floats(const GemmShape& shape);

// c = a · b, or c += a · b with `accumulate`; c is row-major, m × n, without gaps, and overlaps
// nothing. `scratch` has gemm_scratch_floats() floats.
void gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
          float* c, float* scratch);

// A way to multiply: this one, or one of another precision. Both as above.
struct GemmWay {
  size_t (*scratch_floats)(const GemmShape& shape);
  void (*multiply)(const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                   bool accumulate, float* c, float* scratch);
};
inline constexpr GemmWay kGemm{gemm_scratch_floats, gemm};

}  // namespace starling
