// How it goes, with a · b cut into equal blocks of at most kDepth along k:
//   a's block is packed into equal strips of at most kRows rows, k by k;
//   b's block is packed into strips of kStrip columns, k by k, a group of strips at a time, so that
//   memory is read in order whichever way the matrix lies;
//   the tile kernel multiplies one strip of each into kRows × kStrip sums in registers.
// Row-major b that is used for few rows of a is not packed: the tile kernel reads it in place.
// Dot products (b given by columns, few rows) need no packing either: both run along k.
#include "tensor/gemm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/gemm.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef STARLING_GEMM_CONSTANTS
#define STARLING_GEMM_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kDepth = 320;    // of a block along k: a strip of b (20 KiB) stays in L1
constexpr int64_t kStrip = 16;     // columns of a strip of b
constexpr int64_t kRows = 6;       // rows of a strip of a: 6 × 16 sums are 12 AVX2 registers
constexpr int64_t kGroup = 512;    // columns of b packed at a time: kDepth × kGroup stays in L2
constexpr int64_t kPackRows = 24;  // rows of a from which packing b pays
constexpr int64_t kDotWork = 256;  // m · n up to which dot products need no packing

// A strip of b has a line more than it needs: strips of 16 KiB would all fall on the same few sets
// of the caches.
constexpr int64_t strip_floats(int64_t depth) { return (depth + 1) * kStrip; }

// Blocks and strips are of equal size, give or take one: a short one at the end would cost nearly
// as much as a whole one.
constexpr int64_t depth_of(int64_t k) {
  const int64_t blocks = (k + kDepth - 1) / kDepth;
  return blocks == 0 ? 0 : (k + blocks - 1) / blocks;
}
constexpr int64_t row_strips(int64_t m) { return (m + kRows - 1) / kRows; }
constexpr int64_t strip_begin(int64_t m, int64_t strip) { return strip * m / row_strips(m); }

int64_t round_up_to(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// Sums of one tile, `rows` of a × kStrip, over k < depth. `a` is packed (`rows` floats per k); b's
// row k is at b + k · b_stride. The first `columns` of the tile go to c.
template <int rows>
HWY_INLINE void tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                     int64_t b_stride, bool add, float* HWY_RESTRICT c, int64_t c_stride,
                     int64_t columns) {
  const D d;
  constexpr int kVectors = static_cast<int>(kStrip / hn::MaxLanes(D()));
  V sums[rows][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < depth; ++k) {
    V right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < rows; ++r) {
      const V left = hn::Set(d, a[r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
    a += rows;
    b += b_stride;
  }
  if (columns == kStrip) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        float* to = c + r * c_stride + v * lanes;
        hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sums[r][v]) : sums[r][v], d, to);
      }
    }
    return;
  }
  alignas(64) float edge[kStrip];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, edge + v * lanes);
    float* to = c + r * c_stride;
    for (int64_t j = 0; j < columns; ++j) to[j] = add ? to[j] + edge[j] : edge[j];
  }
}

void any_tile(int64_t rows, int64_t depth, const float* a, const float* b, int64_t b_stride,
              bool add, float* c, int64_t c_stride, int64_t columns) {
  switch (rows) {
    case 1:
      return tile<1>(depth, a, b, b_stride, add, c, c_stride, columns);
    case 2:
      return tile<2>(depth, a, b, b_stride, add, c, c_stride, columns);
    case 3:
      return tile<3>(depth, a, b, b_stride, add, c, c_stride, columns);
    case 4:
      return tile<4>(depth, a, b, b_stride, add, c, c_stride, columns);
    case 5:
      return tile<5>(depth, a, b, b_stride, add, c, c_stride, columns);
    default:
      return tile<6>(depth, a, b, b_stride, add, c, c_stride, columns);
  }
}

// Four columns of four: to[j · to_stride + i] = from[i · from_stride + j].
#if HWY_TARGET == HWY_SCALAR
void transpose_4x4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}
#else
HWY_INLINE void transpose_4x4(const float* from, int64_t from_stride, float* to,
                              int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride),
             r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)),
             b = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1)),
             f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, to + 3 * to_stride);
}
#endif

// to[k · width + j] = element (k, j) of b, for `columns` ≤ width columns; zeros beyond.
void pack_strip_transposed(const MatrixView& b, int64_t depth, int64_t columns, int64_t width,
                           float* to) {
  int64_t j = 0;
  for (; j + 4 <= columns; j += 4) {
    const float* from = b.data + j * b.column_stride;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      // The next four columns, which lie too far apart for the machine to guess.
      hwy::Prefetch(from + (4 + k / 4 % 4) * b.column_stride + k / 16 * 16);
      transpose_4x4(from + k, b.column_stride, to + k * width + j, width);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < 4; ++i) to[k * width + j + i] = from[i * b.column_stride + k];
    }
  }
  for (; j < width; ++j) {
    for (int64_t k = 0; k < depth; ++k)
      to[k * width + j] = j < columns ? b.data[j * b.column_stride + k] : 0.0f;
  }
}

// Packs `columns` columns of b, strip after strip; each strip has strip_floats(depth) floats.
void pack_b(const MatrixView& b, int64_t depth, int64_t columns, float* to) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (b.row_stride == 1 && b.column_stride != 1) {
    for (int64_t j = 0; j < columns; j += kStrip) {
      pack_strip_transposed({b.data + j * b.column_stride, 1, b.column_stride}, depth,
                            std::min(kStrip, columns - j), kStrip,
                            to + j / kStrip * strip_floats(depth));
    }
    return;
  }
  const int64_t whole = columns / kStrip * kStrip;
  for (int64_t k = 0; k < depth; ++k) {  // row by row: memory is read in order
    const float* from = b.data + k * b.row_stride;
    for (int64_t j = 0; j < whole; j += kStrip) {
      float* strip = to + j / kStrip * strip_floats(depth) + k * kStrip;
      hwy::Prefetch(from + 2 * b.row_stride + j);
      for (int64_t v = 0; v < kStrip; v += lanes)
        hn::StoreU(hn::LoadU(d, from + j + v), d, strip + v);
    }
    if (whole < columns) {
      float* strip = to + whole / kStrip * strip_floats(depth) + k * kStrip;
      for (int64_t j = 0; j < kStrip; ++j) strip[j] = whole + j < columns ? from[whole + j] : 0.0f;
    }
  }
}

// Packs a's rows strip by strip, each k by k.
void pack_a(const MatrixView& a, int64_t m, int64_t depth, float* to) {
  for (int64_t strip = 0; strip < row_strips(m); ++strip) {
    const int64_t i = strip_begin(m, strip), rows = strip_begin(m, strip + 1) - i;
    const float* from = a.data + i * a.row_stride;
    if (a.column_stride == 1) {
      pack_strip_transposed({from, 1, a.row_stride}, depth, rows, rows, to + i * depth);
      continue;
    }
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t r = 0; r < rows; ++r) {
        to[i * depth + k * rows + r] = from[r + k * a.column_stride];
      }
    }
  }
}

void gemm_blocks(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch) {
  // Columns beyond the last whole strip are read as a strip too: only packed memory has them.
  const bool in_place = b.column_stride == 1 && s.m < kPackRows;
  float* const packed_a = scratch;
  const int64_t most = depth_of(s.k);
  float* const packed_b = scratch + round_up_to(s.m * most, kStrip);
  for (int64_t k = 0; k < s.k; k += most) {
    const int64_t depth = std::min(most, s.k - k);
    pack_a({a.data + k * a.column_stride, a.row_stride, a.column_stride}, s.m, depth, packed_a);
    const bool add = accumulate || k > 0;
    for (int64_t group = 0; group < s.n; group += kGroup) {
      const int64_t columns = std::min(kGroup, s.n - group);
      const MatrixView block{b.data + k * b.row_stride + group * b.column_stride, b.row_stride,
                             b.column_stride};
      const int64_t whole = in_place ? columns / kStrip * kStrip : 0;
      if (whole < columns) {
        pack_b({block.data + whole * block.column_stride, block.row_stride, block.column_stride},
               depth, columns - whole, packed_b);
      }
      for (int64_t j = 0; j < columns; j += kStrip) {
        const float* strip =
            j < whole ? block.data + j : packed_b + (j - whole) / kStrip * strip_floats(depth);
        const int64_t stride = j < whole ? block.row_stride : kStrip;
        for (int64_t r = 0; r < row_strips(s.m); ++r) {
          const int64_t i = strip_begin(s.m, r), rows = strip_begin(s.m, r + 1) - i;
          any_tile(rows, depth, packed_a + i * depth, strip, stride, add, c + i * s.n + group + j,
                   s.n, std::min(kStrip, columns - j));
        }
      }
    }
  }
}

// Sixteen partial sums, element k going to sum k mod 16, combined pairwise.
HWY_INLINE float combine(const D d, const V* sums, const float* tail_a, const float* tail_b,
                         int64_t tail) {
  alignas(64) float parts[kStrip];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t v = 0; v * lanes < kStrip; ++v) hn::StoreU(sums[v], d, parts + v * lanes);
  for (int64_t t = 0; t < tail; ++t) parts[t] += tail_a[t] * tail_b[t];
  for (int64_t width = kStrip / 2; width > 0; width /= 2) {
    for (int64_t t = 0; t < width; ++t) parts[t] += parts[t + width];
  }
  return parts[0];
}

// `rows` rows of a times `columns` columns of b, all running along k.
template <int rows, int columns>
HWY_INLINE void dots(int64_t k, const float* HWY_RESTRICT a, int64_t a_stride,
                     const float* HWY_RESTRICT b, int64_t b_stride, bool add, float* HWY_RESTRICT c,
                     int64_t c_stride) {
  const D d;
  constexpr int kVectors = static_cast<int>(kStrip / hn::MaxLanes(D()));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[rows][columns][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; ++j) {
      for (int v = 0; v < kVectors; ++v) sums[r][j][v] = hn::Zero(d);
    }
  }
  const int64_t whole = k / kStrip * kStrip;
  for (int64_t i = 0; i < whole; i += kStrip) {
    for (int v = 0; v < kVectors; ++v) {
      V left[rows];
      for (int r = 0; r < rows; ++r) left[r] = hn::LoadU(d, a + r * a_stride + i + v * lanes);
      for (int j = 0; j < columns; ++j) {
        const V right = hn::LoadU(d, b + j * b_stride + i + v * lanes);
        for (int r = 0; r < rows; ++r) sums[r][j][v] = hn::MulAdd(left[r], right, sums[r][j][v]);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; ++j) {
      const float sum =
          combine(d, sums[r][j], a + r * a_stride + whole, b + j * b_stride + whole, k - whole);
      float* to = c + r * c_stride + j;
      *to = add ? *to + sum : sum;
    }
  }
}

template <int rows>
void dot_rows(const GemmShape& s, const float* a, int64_t a_stride, const MatrixView& b, bool add,
              float* c) {
  int64_t j = 0;
  for (; j + 3 <= s.n; j += 3)
    dots<rows, 3>(s.k, a, a_stride, b.data + j * b.column_stride, b.column_stride, add, c + j, s.n);
  for (; j < s.n; ++j)
    dots<rows, 1>(s.k, a, a_stride, b.data + j * b.column_stride, b.column_stride, add, c + j, s.n);
}

void gemm_dots(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
               float* c) {
  int64_t i = 0;
  for (; i + 2 <= s.m; i += 2)
    dot_rows<2>(s, a.data + i * a.row_stride, a.row_stride, b, accumulate, c + i * s.n);
  for (; i < s.m; ++i)
    dot_rows<1>(s, a.data + i * a.row_stride, a.row_stride, b, accumulate, c + i * s.n);
}

void gemm_target(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch) {
  const bool along_k = a.column_stride == 1 && b.row_stride == 1;
  if (along_k && s.m * s.n <= kDotWork) {
    gemm_dots(s, a, b, accumulate, c);
  } else {
    gemm_blocks(s, a, b, accumulate, c, scratch);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(gemm_target);

size_t gemm_scratch_floats(const GemmShape& shape) {
  const int64_t depth = depth_of(shape.k);
  const int64_t columns = round_up_to(std::min(shape.n, kGroup), kStrip);
  return static_cast<size_t>(round_up_to(shape.m * depth, kStrip) +
                             columns / kStrip * strip_floats(depth));
}

void gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
          float* c, float* scratch) {
  HWY_DYNAMIC_DISPATCH(gemm_target)(shape, a, b, accumulate, c, scratch);
}

}  // namespace starling
#endif
