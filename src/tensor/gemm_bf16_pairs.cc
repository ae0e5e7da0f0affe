// Products of bf16 by dot products of pairs (vdpbf16ps of AVX512_BF16), for processors without
// tiles. How it goes, with tiles as gemm_bf16_cut.h has them:
//   a is packed whole: a tile has a vector for each row, with its pairs along k;
//   b is packed in strips of two tiles of columns and at most kDepth tiles along k, each just
//   before its use: a tile has a vector for each pair of k, with one pair for each column;
//   the kernel multiplies up to kRows rows by a strip, with all sums in registers. Before each
//   tile it asks memory for some of where its sums go and of what the next strip is packed from.
// Sums wait in a block until all of k is in them, and then go to c. Shards along k are multiplied
// one after another, and joined along the tree as they come.
#include <algorithm>

#include "tensor/gemm_bf16.h"
#include "tensor/gemm_bf16_cut.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/gemm_bf16_pairs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/float_flags.h"
#include "tensor/gemm_bf16_pack-inl.h"

#ifndef STARLING_GEMM_BF16_PAIRS_CONSTANTS
#define STARLING_GEMM_BF16_PAIRS_CONSTANTS
namespace starling::bf16 {
namespace {

constexpr int64_t kStrip = 2 * kLines;  // columns of a strip
constexpr int64_t kRows = 8;            // half of a tile: 16 sums, where 6 keep Zen 4 busy
constexpr int64_t kDepth = 16;          // tiles along k of a strip: a block of a stays in L2
constexpr int64_t kUnrolled = 4;        // pairs of k

// Tiles along k of a strip, nearly the same for all: a short one would cost as much as a long one
// for its sums. Shards, which are short, are in one strip.
int64_t depth_of(const Cut& cut) {
  return cut.shards > 1 ? cut.tiles() : parts_of(cut.tiles(), parts_of(cut.tiles(), kDepth));
}

// How many pairs of the tile before tile `end` are multiplied: where a shard ends, those behind it
// are zeros.
int64_t last_pairs(const Cut& cut, int64_t end) {
  if (end % cut.shard_tiles != 0) return kLines;
  const int64_t depth = cut.shard_depth - (cut.shard_tiles - 1) * kTileDepth;
  return parts_of(depth, 2 * kUnrolled) * kUnrolled;
}

// What the scratch has: the left operand, packed; strips; sums that wait.
struct Scratch {
  bool keeps_strips;         // for the next block of rows
  int64_t right, sums, end;  // where they begin

  Scratch(const GemmShape& s, const Cut& cut)
      : keeps_strips(s.m > kBlock), right(packed_floats(s.m, cut.tiles())) {
    const int64_t depth = depth_of(cut);
    sums =
        right + (keeps_strips ? packed_floats(kBlock, cut.tiles()) : packed_floats(kStrip, depth));
    end = sums + (depth < cut.tiles() ? kBlock * kBlock : 0);
  }
};

}  // namespace
}  // namespace starling::bf16
#endif

HWY_BEFORE_NAMESPACE();
namespace starling::bf16 {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3

// Asks memory, little by little, for what is packed next.
class Fetch {
 public:
  // `lines` lines from `line` on, `depth` elements of each from `k` on.
  Fetch(const Lines& from, int64_t line, int64_t lines, int64_t k, int64_t depth, int64_t parts)
      : at_(from.data + line * from.line_stride + k * from.k_stride),
        stride_(from.k_stride == 1 ? from.line_stride : from.k_stride),
        width_(from.k_stride == 1 ? depth : lines),
        left_(parts_of(width_, kLines) * (from.k_stride == 1 ? lines : depth)),
        share_(parts_of(left_, parts)) {}

  HWY_INLINE void part() {
    for (int64_t i = std::min(share_, left_); i > 0; --i, --left_) {
      __builtin_prefetch(at_ + done_, 0, 2);
      done_ += kLines;
      if (done_ >= width_) {
        done_ = 0;
        at_ += stride_;
      }
    }
  }

 private:
  const float* at_;
  int64_t stride_, width_, left_, share_, done_ = 0;
};

// A packed strip of b, and what becomes of its products.
struct Strip {
  const float* tiles;
  int64_t stride;  // floats to the second tile of columns
  int64_t columns;
  int64_t shards, shard_tiles;
  int64_t last_pairs;  // of each shard's last tile, that are multiplied
  bool first, last;    // part of k
  bool accumulate;
  int64_t c_stride;
};

// sums + both products of each pair.
HWY_INLINE V plus_products(V sums, Pairs left, Pairs right) {
  auto raw = sums.raw;
  asm("vdpbf16ps %2, %1, %0" : "+v"(raw) : "v"(left.raw), "v"(right.raw));
  return V{raw};
}

// sums += the first `pairs` pairs of k of a tile's rows × those of the strip.
template <int rows, int columns>
HWY_INLINE void multiply_tile(int64_t pairs, const float* a, const float* b, int64_t b_stride,
                              V (&sums)[rows][columns]) {
  const auto* left = reinterpret_cast<const uint32_t*>(a);
  const auto* right = reinterpret_cast<const uint32_t*>(b);
  for (int64_t done = 0; done < pairs; done += kUnrolled) {
#pragma GCC unroll 4
    for (int64_t pair = done; pair < done + kUnrolled; ++pair) {
      Pairs strip[columns];
      for (int v = 0; v < columns; ++v)
        strip[v] = hn::Load(U(), right + v * b_stride + pair * kLines);
      for (int r = 0; r < rows; ++r) {
        const Pairs row = hn::Set(U(), left[r * kLines + pair]);
        for (int v = 0; v < columns; ++v) sums[r][v] = plus_products(sums[r][v], row, strip[v]);
      }
    }
  }
}

// Sums go to c, or are added there. `not_finite` becomes NaN if one of them is not finite. (Columns
// that only fill the last vector are finite if the others of their row are.)
template <int rows, int columns>
HWY_INLINE void write(const Strip& strip, V (&sums)[rows][columns], float* c, V& not_finite) {
  const D d;
  const auto mask = hn::FirstN(d, static_cast<size_t>(strip.columns - (columns - 1) * kLines));
  if (strip.accumulate) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < columns; ++v) {
        const float* from = c + r * strip.c_stride + v * kLines;
        const V before = v + 1 < columns ? hn::LoadU(d, from) : hn::MaskedLoad(mask, d, from);
        sums[r][v] = hn::Add(before, sums[r][v]);
      }
    }
  }
  V traces = hn::Zero(d);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < columns; ++v) {
      float* to = c + r * strip.c_stride + v * kLines;
      traces = hn::MulAdd(sums[r][v], hn::Zero(d), traces);
      if (v + 1 < columns) {
        hn::StoreU(sums[r][v], d, to);
      } else {
        hn::BlendedStore(sums[r][v], mask, d, to);
      }
    }
  }
  not_finite = hn::Add(not_finite, traces);
}

// `rows` rows of a, of which the first is at `a`, times a strip of `columns` tiles of columns. All
// in one function, so that the sums stay in registers.
template <int rows, int columns>
void multiply_rows(const Strip& strip, const float* a, float* waiting, float* c, Fetch& next,
                   V& not_finite) {
  const D d;
  const auto place = [](float* of, int r, int v) { return of + (r * columns + v) * kLines; };
  V sums[rows][columns];
  alignas(64) float joining[kMaxLevels][rows * columns * kLines];
  const float* b = strip.tiles;
  const float* row = c;
  const int64_t rows_a_tile = parts_of(rows, strip.shards * strip.shard_tiles);
  int64_t rows_left = strip.last ? rows : 0;
  for (int64_t shard = 0;; ++shard) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < columns; ++v)
        sums[r][v] = strip.first ? hn::Zero(d) : hn::Load(d, place(waiting, r, v));
    }
    for (int64_t t = 0; t < strip.shard_tiles; ++t, a += kTileFloats, b += kTileFloats) {
      for (int64_t i = std::min(rows_a_tile, rows_left); i > 0; --i, --rows_left) {
        for (int v = 0; v < columns; ++v) __builtin_prefetch(row + v * kLines, 1);
        row += strip.c_stride;
      }
      next.part();
      for (int r = 0; r < rows; ++r) __builtin_prefetch(a + kTileFloats + r * kLines);
      multiply_tile<rows, columns>(t + 1 < strip.shard_tiles ? kLines : strip.last_pairs, a, b,
                                   strip.stride, sums);
    }
    int level = 0;
    for (; (shard >> level) & 1; ++level) {
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < columns; ++v)
          sums[r][v] = hn::Add(hn::Load(d, place(joining[level], r, v)), sums[r][v]);
      }
    }
    if (shard + 1 == strip.shards) break;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < columns; ++v) hn::Store(sums[r][v], d, place(joining[level], r, v));
    }
  }
  if (strip.last) return write<rows, columns>(strip, sums, c, not_finite);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < columns; ++v) hn::Store(sums[r][v], d, place(waiting, r, v));
  }
}

template <int most = static_cast<int>(kRows)>
void multiply_any(int64_t rows, const Strip& strip, const float* a, float* waiting, float* c,
                  Fetch& next, V& not_finite) {
  if constexpr (most > 1) {
    if (rows < most) return multiply_any<most - 1>(rows, strip, a, waiting, c, next, not_finite);
  }
  (strip.columns > kLines ? multiply_rows<most, 2> : multiply_rows<most, 1>)(strip, a, waiting, c,
                                                                             next, not_finite);
}

// All rows of a block times a strip; `a_stride` floats from tile to tile of rows.
void multiply_strip(int64_t rows, const Strip& strip, const float* a, int64_t a_stride,
                    float* waiting, float* c, Fetch& next, V& not_finite) {
  for (int64_t i = 0; i < rows; i += kLines, a += a_stride) {
    const int64_t count = std::min(kLines, rows - i);
    const int64_t most = parts_of(count, parts_of(count, kRows));  // of nearly equal parts
    for (int64_t r = 0; r < count; r += most, waiting += kRows * kStrip) {
      multiply_any(std::min(most, count - r), strip, a + r * kLines, waiting,
                   c + (i + r) * strip.c_stride, next, not_finite);
    }
  }
}

// Where a strip begins: a column of b, and a tile along k.
struct Corner {
  int64_t column, tile;
};

// Strips of columns `begin` … `end` − 1 are multiplied side by side, `depth` of `tiles` tiles at a
// time; which comes after the one at `now`.
Corner next_corner(Corner now, int64_t begin, int64_t end, int64_t depth, int64_t tiles) {
  if (now.column + kStrip < end) return {now.column + kStrip, now.tile};
  if (now.tile + depth < tiles) return {begin, now.tile + depth};
  return {end, 0};
}

void multiply(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
              float* c, float* scratch) {
  const Cut cut(s);
  const Scratch parts(s, cut);
  const Lines rows{a.data, a.row_stride, a.column_stride, s.m},
      columns{b.data, b.column_stride, b.row_stride, s.n};
  const int64_t tiles = cut.tiles(), depth = depth_of(cut), a_stride = tiles * kTileFloats;
  V not_finite = hn::Zero(D());
  pack(cut, rows, 0, s.m, 0, tiles, true, scratch, a_stride);

  // All rows from `i` on, of a block, times one strip.
  const auto multiply_at = [&](int64_t i, Corner at, int64_t begin, int64_t end) HWY_ATTR {
    const int64_t height = std::min(kBlock, s.m - i), width = std::min(kStrip, end - at.column),
                  count = std::min(depth, tiles - at.tile), stride = count * kTileFloats;
    float* right = scratch + parts.right;
    if (parts.keeps_strips)
      right += packed_floats(kBlock, at.tile) + packed_floats(at.column - begin, count);
    const bool packs = i == 0;
    if (packs)
      pack<false>(cut, columns, at.column, at.column + width, at.tile, count, false, right, stride);
    const Corner then = next_corner(at, begin, end, depth, tiles);
    const int64_t k = then.tile * kTileDepth;
    Fetch next(columns, then.column, packs ? std::min(kStrip, s.n - then.column) : 0, k,
               cut.shards > 1 ? s.k : std::min(depth * kTileDepth, s.k - k),
               parts_of(height, kRows) * count);
    const Strip strip{.tiles = right,
                      .stride = stride,
                      .columns = width,
                      .shards = cut.shards,
                      .shard_tiles = count / cut.shards,
                      .last_pairs = last_pairs(cut, at.tile + count),
                      .first = at.tile == 0,
                      .last = at.tile + count == tiles,
                      .accumulate = accumulate,
                      .c_stride = s.n};
    multiply_strip(height, strip, scratch + i / kLines * a_stride + at.tile * kTileFloats, a_stride,
                   scratch + parts.sums + (at.column - begin) * kBlock, c + i * s.n + at.column,
                   next, not_finite);
  };
  for (int64_t j = 0; j < s.n; j += kBlock) {
    const int64_t end = std::min(j + kBlock, s.n);
    for (int64_t i = 0; i < s.m; i += kBlock) {
      for (Corner at{j, 0}; at.column < end; at = next_corner(at, j, end, depth, tiles))
        multiply_at(i, at, j, end);
    }
  }
  if (!hn::AllTrue(D(), hn::Eq(not_finite, hn::Zero(D())))) raise_overflow();
}

#else

// Never called: bf16_products() says no.
void multiply(const GemmShape&, const MatrixView&, const MatrixView&, bool, float*, float*) {}

#endif

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling::bf16
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace bf16 {
namespace {

HWY_EXPORT(multiply);

size_t scratch_floats(const GemmShape& shape) {
  return static_cast<size_t>(Scratch(shape, Cut(shape)).end);
}

void multiply_here(const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                   bool accumulate, float* c, float* scratch) {
  HWY_DYNAMIC_DISPATCH(multiply)(shape, a, b, accumulate, c, scratch);
}

}  // namespace
}  // namespace bf16

const GemmWay kGemmBf16Pairs{bf16::scratch_floats, bf16::multiply_here};

}  // namespace starling
#endif
