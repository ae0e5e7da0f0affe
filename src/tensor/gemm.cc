// How it goes, with a · b cut into equal blocks of at most kGemmShardDepth along k:
//   the left operand lies in strips of at most kRows rows, k by k: packed, a band of rows at a
//   time, or in place;
//   the right operand is packed into strips of kStrip columns, k by k, each just before its use;
//   the tile kernel multiplies one strip of each into kRows × kStrip sums in registers. Meanwhile
//   it asks memory for where its sums go and for what the next strip is packed from: a few lines
//   every kBreath of k, since a core can wait for only a dozen lines before it stands still.
// Weights that are used for few rows are not packed: row-major ones are right operands in place,
// and those given by columns are left operands in place, their tiles being written transposed.
// Dot products need no packing either: both operands run along k.
#include "tensor/gemm.h"

#include <algorithm>

#include "tensor/gemm_cut.h"
#include "tensor/gemm_sparse.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/gemm_pack-inl.h"

#ifndef STARLING_GEMM_CONSTANTS
#define STARLING_GEMM_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kPackRows = 24;         // rows from which packing row-major weights pays
constexpr int64_t kThinRows = 96;         // rows from which packing weights by columns pays
constexpr int64_t kDotWork = 256;         // m · n of a shard up to which dot products are used
constexpr int64_t kDotParts = 16;         // sums of a dot product
constexpr int64_t kAhead = 8;             // of k: how early the left strip is fetched
constexpr int64_t kBreath = 16;           // of k: how often more of memory is asked for
constexpr int64_t kBandFloats = 1 << 17;  // of a, packed: they stay in the second cache
constexpr int64_t kBandRows = 512;        // of c: the processor remembers where their pages are
constexpr int64_t kMaxRows = 14;          // of a tile of any instruction set
constexpr int64_t kMaxStrip = 32;         // the widest strip of any instruction set

// Rows of a band, of equal size too.
constexpr int64_t band_of(int64_t m, int64_t depth) {
  const int64_t most = std::clamp(kBandFloats / std::max<int64_t>(depth, 1), kMaxRows, kBandRows);
  return std::max<int64_t>(1, equal_part(m, most));
}

// A strip of b has a line more than it needs: strips of 16 KiB would all fall on the same few sets
// of the caches.
constexpr int64_t strip_floats(int64_t depth, int64_t strip) { return (depth + 1) * strip; }

// Whether b is read in place as the left operand.
constexpr bool is_thin(const GemmShape& s, const MatrixView& a, const MatrixView& b) {
  return s.m < kThinRows && a.column_stride == 1 && b.row_stride == 1 && b.column_stride != 1;
}

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// Columns of a right strip and rows of a left one: as many sums as there are registers for, beside
// a row of the right strip and an element of the left one.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kStrip = 32, kRows = 14;
#else
constexpr int64_t kStrip = 16, kRows = 6;
#endif
static_assert(kStrip <= kMaxStrip && kRows <= kMaxRows);

// The left strip of a tile: element (i, k) is at data[k · rows + i] when packed, and at
// data[i · stride + k] in place.
struct Left {
  const float* data;
  int64_t stride;
  bool packed;
};

// Where a tile goes. Element (i, j) belongs at c[i · stride + j], or at c[j · stride + i] when
// `transposed`; j < columns. It is added to what is there, or to zero, so that no sum is −0: one
// whose zeros are skipped (gemm_sparse.h) might have another sign.
struct Place {
  float* c;
  int64_t stride;
  int64_t columns;
  bool add;
  bool transposed;
};

constexpr int64_t breaths_of(const Depth& depth) {
  return depth.shards * std::max<int64_t>(1, (depth.depth + kBreath - 1) / kBreath);
}

constexpr int kVectors = static_cast<int>(kStrip / hn::MaxLanes(D()));
constexpr int64_t kTileFloats = (kRows + 3) / 4 * 4 * kStrip;  // whole squares of four

// A tile that lies in memory goes where it belongs: for edges and for transposed tiles. By itself,
// so that what tile() does often is not spread among it.
HWY_NOINLINE void place_tile(const float* tile, int rows, const Place& to) {
  if (!to.transposed) {
    for (int r = 0; r < rows; ++r) {
      float* c = to.c + r * to.stride;
      for (int64_t j = 0; j < to.columns; ++j) c[j] = (to.add ? c[j] : 0.0f) + tile[r * kStrip + j];
    }
    return;
  }
  constexpr int64_t kWidth = (kRows + 3) / 4 * 4;
  HWY_ALIGN float turned[kStrip * kWidth];
  for (int r = 0; r < rows; r += 4) {
    for (int64_t j = 0; j < kStrip; j += 4)
      transpose_4x4(tile + r * kStrip + j, kStrip, turned + j * kWidth + r, kWidth);
  }
  for (int64_t j = 0; j < to.columns; ++j) {
    float* c = to.c + j * to.stride;
    for (int r = 0; r < rows; ++r) c[r] = (to.add ? c[r] : 0.0f) + turned[j * kWidth + r];
  }
}

// `rows` of the left strip × kStrip; the right strip's row k is at b + k · b_stride. The sums of
// shards are joined as they come: two of one size make one of the next. All in one function, so
// that the sums stay in registers.
template <int rows, bool packed>
void tile(const Depth& depth, const float* HWY_RESTRICT a, int64_t a_stride,
          const float* HWY_RESTRICT b, int64_t b_stride, const Place& to, Fetch& next) {
  const D d;
  V sums[rows][kVectors];
  HWY_ALIGN float waiting[kGemmLevels][kTileFloats];
  const bool direct = !to.transposed && to.columns == kStrip;
  const float* place = to.c;
  const int64_t places = (rows + breaths_of(depth) - 1) / breaths_of(depth);
  int64_t places_left = direct ? rows : 0;
  for (int64_t shard = 0;; ++shard) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
    }
    const auto multiply_one = [&] {
      V right[kVectors];
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
      for (int r = 0; r < rows; ++r) {
        const V left = hn::Set(d, packed ? a[r] : a[r * a_stride]);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
      }
      if constexpr (packed && kLanes == 16) __builtin_prefetch(a + rows * kAhead);
      a += packed ? rows : 1;
      b += b_stride;
    };
    for (int64_t done = 0; done < depth.depth; done += kBreath) {
      for (int64_t i = std::min(places, places_left); i > 0; --i, --places_left) {
        for (int64_t j = 0; j < kStrip; j += kLine) __builtin_prefetch(place + j, 1);
        place += to.stride;
      }
      next.part();
      if (depth.depth - done >= kBreath) {
        // A count that is a constant: the processor foresees the loop's end. GCC would let the sums
        // out of their registers if it were written out.
        for (int k = 0; k < kBreath; ++k) multiply_one();
      } else {
        for (int64_t k = done; k < depth.depth; ++k) multiply_one();
      }
    }
    int level = 0;
    for (; (shard >> level) & 1; ++level) {
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < kVectors; ++v)
          sums[r][v] = hn::Add(hn::Load(d, waiting[level] + r * kStrip + v * kLanes), sums[r][v]);
      }
    }
    if (shard + 1 == depth.shards) break;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < kVectors; ++v)
        hn::Store(sums[r][v], d, waiting[level] + r * kStrip + v * kLanes);
    }
  }
  if (direct) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        float* c = to.c + r * to.stride + v * kLanes;
        hn::StoreU(to.add ? hn::Add(hn::LoadU(d, c), sums[r][v]) : hn::Add(sums[r][v], hn::Zero(d)),
                   d, c);
      }
    }
    return;
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      hn::Store(sums[r][v], d, waiting[0] + r * kStrip + v * kLanes);
  }
  place_tile(waiting[0], rows, to);
}

template <int rows>
void tile_of(const Depth& depth, const Left& a, const float* b, int64_t b_stride, const Place& to,
             Fetch& next) {
  if (a.packed) {
    tile<rows, true>(depth, a.data, a.stride, b, b_stride, to, next);
  } else {
    tile<rows, false>(depth, a.data, a.stride, b, b_stride, to, next);
  }
}

template <int most = static_cast<int>(kRows)>
void any_tile(int64_t rows, const Depth& depth, const Left& a, const float* b, int64_t b_stride,
              const Place& to, Fetch& next) {
  if constexpr (most > 1) {
    if (rows < most) return any_tile<most - 1>(rows, depth, a, b, b_stride, to, next);
  }
  tile_of<most>(depth, a, b, b_stride, to, next);
}

// Packs up to kStrip columns of b, k by k; zeros beyond them.
void pack_right(const MatrixView& b, int64_t depth, int64_t columns, float* to) {
  if (b.row_stride == 1 && b.column_stride != 1) {
    pack_strip_transposed(b, depth, columns, kStrip, to);
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    const float* from = b.data + k * b.row_stride;
    if (columns == kStrip) {
      for (int v = 0; v < kVectors; ++v)
        hn::StoreU(hn::LoadU(D(), from + v * kLanes), D(), to + k * kStrip + v * kLanes);
    } else {
      for (int64_t j = 0; j < kStrip; ++j) to[k * kStrip + j] = j < columns ? from[j] : 0.0f;
    }
  }
}

// Packs a's rows strip by strip, each k by k.
void pack_left(const MatrixView& a, int64_t m, int64_t depth, float* to) {
  const EqualParts strips(m, kRows);
  const float* from = a.data;
  for (int64_t strip = 0; strip < strips.count; ++strip) {
    const int64_t rows = strips.size(strip);
    if (a.column_stride == 1) {
      pack_strip_transposed({from, 1, a.row_stride}, depth, rows, rows, to);
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t r = 0; r < rows; ++r) to[k * rows + r] = from[r + k * a.column_stride];
      }
    }
    from += rows * a.row_stride;
    to += rows * depth;
  }
}

// One block along k: c (+)= a · b, with both packed, or b in place.
void multiply_block(const GemmShape& s, const Depth& depth, const MatrixView& a,
                    const MatrixView& b, bool add, float* c, float* scratch) {
  const int64_t total = depth.total();
  const bool in_place = b.column_stride == 1 && s.m < kPackRows;
  float* const left = scratch;
  float* const right = scratch + round_up_to(s.m * total, kStrip);
  pack_left(a, s.m, total, left);
  const EqualParts strips(s.m, kRows);
  for (int64_t j = 0; j < s.n; j += kStrip) {
    const int64_t columns = std::min(kStrip, s.n - j);
    const MatrixView strip = columns_of(b, j);
    // Columns beyond the last whole strip are read too: only packed memory has them.
    const bool whole = in_place && columns == kStrip;
    if (!whole) pack_right(strip, total, columns, right);
    Fetch next(columns_of(b, j + kStrip), total, std::min(kStrip, s.n - j - columns), kStrip,
               strips.count * breaths_of(depth));
    const float* a_strip = left;
    float* c_strip = c + j;
    for (int64_t r = 0; r < strips.count; ++r) {
      const int64_t rows = strips.size(r);
      any_tile(rows, depth, {a_strip, 0, true}, whole ? strip.data : right,
               whole ? strip.row_stride : kStrip, {c_strip, s.n, columns, add, false}, next);
      a_strip += rows * total;
      c_strip += rows * s.n;
    }
  }
}

// The same with the roles exchanged, for few rows of a: those are packed into right strips, and b,
// given by columns, is read in place as the left operand.
void multiply_thin_block(const GemmShape& s, const Depth& depth, const MatrixView& a,
                         const MatrixView& b, bool add, float* c, float* scratch) {
  const MatrixView turned{a.data, a.column_stride, a.row_stride};
  for (int64_t i = 0; i < s.m; i += kStrip) {
    pack_right(columns_of(turned, i), depth.depth, std::min(kStrip, s.m - i),
               scratch + i / kStrip * strip_floats(depth.depth, kStrip));
  }
  const EqualParts strips(s.n, kRows);
  Fetch nothing(b, 0, 0, kStrip, 1);
  const float* b_strip = b.data;
  float* c_strip = c;
  for (int64_t r = 0; r < strips.count; ++r) {
    const int64_t rows = strips.size(r);
    for (int64_t i = 0; i < s.m; i += kStrip) {
      any_tile(rows, depth, {b_strip, b.column_stride, false},
               scratch + i / kStrip * strip_floats(depth.depth, kStrip), kStrip,
               {c_strip + i * s.n, s.n, std::min(kStrip, s.m - i), add, true}, nothing);
    }
    b_strip += rows * b.column_stride;
    c_strip += rows;
  }
}

// One block along k, band by band.
void multiply_bands(const GemmShape& s, const Depth& depth, const MatrixView& a,
                    const MatrixView& b, bool add, float* c, float* scratch) {
  const int64_t most = band_of(s.m, depth.total());
  for (int64_t i = 0; i < s.m; i += most) {
    GemmShape band = s;
    band.m = std::min(most, s.m - i);
    multiply_block(band, depth, {a.data + i * a.row_stride, a.row_stride, a.column_stride}, b, add,
                   c + i * s.n, scratch);
  }
}

void gemm_blocks(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch) {
  const auto multiply =
      s.depth_shards == 1 && is_thin(s, a, b) ? multiply_thin_block : multiply_bands;
  for_blocks(s, a, b, accumulate,
             [&](const Depth& depth, const MatrixView& a_block, const MatrixView& b_block,
                 bool add) { multiply(s, depth, a_block, b_block, add, c, scratch); });
}

constexpr int kDotVectors = static_cast<int>(kDotParts / kLanes);

// Sixteen sums to one: t and t + 8, then t + 4, t + 2, t + 1.
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE float fold(const V* sums) {
  const hn::FixedTag<float, 4> four;
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<float, 8> eight;
  const auto half = hn::Add(hn::LowerHalf(eight, sums[0]), hn::UpperHalf(eight, sums[0]));
#elif HWY_TARGET == HWY_AVX2
  const auto half = hn::Add(sums[0], sums[1]);
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const auto quarter = hn::Add(hn::LowerHalf(four, half), hn::UpperHalf(four, half));
#else
  const auto quarter = hn::Add(hn::Add(sums[0], sums[2]), hn::Add(sums[1], sums[3]));
#endif
  const auto two = hn::Add(quarter, hn::Shuffle1032(quarter));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}
#endif

// Sixteen partial sums, element k going to sum k mod 16, combined pairwise.
HWY_INLINE float combine(const D d, const V* sums, const float* tail_a, const float* tail_b,
                         int64_t tail) {
#if HWY_TARGET != HWY_SCALAR
  if (tail == 0) return fold(sums);
#endif
  alignas(64) float parts[kDotParts];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t v = 0; v * lanes < kDotParts; ++v) hn::StoreU(sums[v], d, parts + v * lanes);
  for (int64_t t = 0; t < tail; ++t) parts[t] += tail_a[t] * tail_b[t];
  for (int64_t width = kDotParts / 2; width > 0; width /= 2) {
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
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[rows][columns][kDotVectors];
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; ++j) {
      for (int v = 0; v < kDotVectors; ++v) sums[r][j][v] = hn::Zero(d);
    }
  }
  const int64_t whole = k / kDotParts * kDotParts;
  for (int64_t i = 0; i < whole; i += kDotParts) {
    for (int v = 0; v < kDotVectors; ++v) {
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

// As many sums at once as registers hold.
constexpr int kDotRows = kDotVectors == 1 ? 4 : 2, kDotColumns = kDotVectors == 1 ? 5 : 3;

template <int rows>
void dot_rows(const GemmShape& s, const float* a, int64_t a_stride, const MatrixView& b, bool add,
              float* c) {
  int64_t j = 0;
  for (; j + kDotColumns <= s.n; j += kDotColumns)
    dots<rows, kDotColumns>(s.k, a, a_stride, b.data + j * b.column_stride, b.column_stride, add,
                            c + j, s.n);
  for (; j < s.n; ++j)
    dots<rows, 1>(s.k, a, a_stride, b.data + j * b.column_stride, b.column_stride, add, c + j, s.n);
}

void gemm_dots(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
               float* c) {
  int64_t i = 0;
  for (; i + kDotRows <= s.m; i += kDotRows)
    dot_rows<kDotRows>(s, a.data + i * a.row_stride, a.row_stride, b, accumulate, c + i * s.n);
  for (; i < s.m; ++i)
    dot_rows<1>(s, a.data + i * a.row_stride, a.row_stride, b, accumulate, c + i * s.n);
}

void gemm_target(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch) {
  // Vectors of gradients are not: their shards are joined by the tree.
  const bool vectors = a.row_stride == 1 && b.column_stride == 1;
  const bool along_k = a.column_stride == 1 && b.row_stride == 1 && !vectors;
  if (along_k && s.m / s.row_shards * s.n <= kDotWork) {
    gemm_dots(s, a, b, accumulate, c);
  } else if (gemm_sparse_pays(s, a)) {
    gemm_sparse(s, a, b, accumulate, c, scratch);
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
  const int64_t depth = block_depth(shape).total();
  const int64_t strip = strip_floats(depth, kMaxStrip);
  const int64_t thin = (shape.m + kMaxStrip - 1) / kMaxStrip * strip;
  const int64_t band = std::min(shape.m * depth, std::max(kBandFloats, kMaxRows * depth));
  const int64_t packed = round_up_to(band, kMaxStrip) + strip;
  return std::max(static_cast<size_t>(std::max(thin, packed)), gemm_sparse_scratch_floats(shape));
}

void gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
          float* c, float* scratch) {
  HWY_DYNAMIC_DISPATCH(gemm_target)(shape, a, b, accumulate, c, scratch);
}

}  // namespace starling
#endif
