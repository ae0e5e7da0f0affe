// Products of bf16 by the processor's matrix tiles (AMX). How it goes, with tiles as
// gemm_bf16_cut.h has them:
//   a is packed whole: a tile has a vector for each row, with its pairs along k;
//   b is packed in blocks of kBlock columns and kDepth tiles along k: a tile has a vector for each
//   pair of k, with one pair for each column;
//   a square is two tiles of rows by two of columns; its sums are four tiles, which wait in a block
//   of squares until all of k is in them, and then go to c.
// Shards along k are multiplied one after another for each square, and joined along the tree there.
#include <immintrin.h>

#include <algorithm>

#include "tensor/gemm_bf16.h"
#include "tensor/gemm_bf16_cut.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/gemm_bf16_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/float_flags.h"
#include "tensor/gemm_bf16_pack-inl.h"

#ifndef STARLING_GEMM_BF16_TILES_CONSTANTS
#define STARLING_GEMM_BF16_TILES_CONSTANTS
namespace starling::bf16 {
namespace {

constexpr int64_t kSquare = 2 * kLines;  // rows and columns of a square
constexpr int64_t kSquareFloats = kSquare * kSquare;
constexpr int64_t kBlockSquares = kBlock / kSquare;  // each way
constexpr int64_t kDepth = 16;  // tiles along k of a block: two rows of them stay in L1

// Tiles along k that are multiplied at a time. Shards are short.
int64_t depth_of(const Cut& cut) { return cut.shards > 1 ? cut.tiles() : kDepth; }

int64_t right_floats(const GemmShape& s, const Cut& cut) {
  return packed_floats(std::min(kBlock, s.n), cut.tiles());
}

}  // namespace
}  // namespace starling::bf16
#endif

HWY_BEFORE_NAMESPACE();
namespace starling::bf16 {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3

// The eight tile registers are 16 rows of 64 bytes while this lives. (The compiler's own functions
// for tiles do not say that they read and write memory.)
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) Configuration {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Configuration kConfiguration;
    asm volatile("ldtilecfg %0" ::"m"(kConfiguration));
  }
  ~TileRegisters() { asm volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

template <int tile>
HWY_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int tile>
HWY_INLINE void load_tile(const float* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int tile>
HWY_INLINE void store_tile(float* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int sums, int left, int right>
HWY_INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}

// --- squares ------------------------------------------------------------------------------------

// A square of `rows` × `columns` tiles: sums (+)= `count` tiles of each, which lie one after
// another; `stride` floats from line to line of tiles.
template <int rows, int columns>
void multiply_square(int64_t count, const float* a, const float* b, int64_t stride, bool add,
                     float* sums) {
  constexpr bool kTall = rows == 2, kWide = columns == 2;
  if (add) {
    load_tile<0>(sums);
    if constexpr (kWide) load_tile<1>(sums + kTileFloats);
    if constexpr (kTall) load_tile<2>(sums + 2 * kTileFloats);
    if constexpr (kTall && kWide) load_tile<3>(sums + 3 * kTileFloats);
  } else {
    zero_tile<0>();
    if constexpr (kWide) zero_tile<1>();
    if constexpr (kTall) zero_tile<2>();
    if constexpr (kTall && kWide) zero_tile<3>();
  }
  for (int64_t t = 0; t < count; ++t, a += kTileFloats, b += kTileFloats) {
    load_tile<6>(b);
    load_tile<4>(a);
    multiply_tiles<0, 4, 6>();
    if constexpr (kWide) {
      load_tile<7>(b + stride);
      multiply_tiles<1, 4, 7>();
    }
    if constexpr (kTall) {
      load_tile<5>(a + stride);
      multiply_tiles<2, 5, 6>();
    }
    if constexpr (kTall && kWide) multiply_tiles<3, 5, 7>();
  }
  store_tile<0>(sums);
  if constexpr (kWide) store_tile<1>(sums + kTileFloats);
  if constexpr (kTall) store_tile<2>(sums + 2 * kTileFloats);
  if constexpr (kTall && kWide) store_tile<3>(sums + 3 * kTileFloats);
}

using MultiplySquare = void (*)(int64_t, const float*, const float*, int64_t, bool, float*);
MultiplySquare square_of(int64_t rows, int64_t columns) {
  if (rows > kLines) return columns > kLines ? multiply_square<2, 2> : multiply_square<2, 1>;
  return columns > kLines ? multiply_square<1, 2> : multiply_square<1, 1>;
}

// Room for the squares of shards: one to sum in, and one for each level of the tree that waits.
struct ShardSquares {
  alignas(64) float floats[kMaxLevels + 1][kSquareFloats];
};

// Adds the earlier to the later one, where they have tiles.
void join(int64_t rows, int64_t columns, const float* earlier, float* later) {
  for (int64_t tile = 0; tile < 4; ++tile) {
    if ((tile / 2 == 1 && rows <= kLines) || (tile % 2 == 1 && columns <= kLines)) continue;
    for (int64_t i = tile * kTileFloats; i < (tile + 1) * kTileFloats; i += kLines) {
      hn::Store(hn::Add(hn::Load(D(), earlier + i), hn::Load(D(), later + i)), D(), later + i);
    }
  }
}

// The sums of all shards, joined as they come: two of one size make one of the next. Returns where
// they are.
const float* multiply_shards(int64_t rows, int64_t columns, const Cut& cut, const float* a,
                             const float* b, int64_t stride, ShardSquares& room) {
  const MultiplySquare multiply = square_of(rows, columns);
  float* now = room.floats[kMaxLevels];
  float* waiting[kMaxLevels];
  for (int level = 0; level < kMaxLevels; ++level) waiting[level] = room.floats[level];
  for (int64_t shard = 0; shard < cut.shards; ++shard) {
    const int64_t at = shard * cut.shard_tiles * kTileFloats;
    multiply(cut.shard_tiles, a + at, b + at, stride, false, now);
    int level = 0;
    for (; (shard >> level) & 1; ++level) {
      join(rows, columns, waiting[level], now);
    }
    if (shard + 1 < cut.shards) std::swap(now, waiting[level]);
  }
  return now;
}

// Asks memory for the place of a square, which is written when its sums are there.
void fetch_square(int64_t rows, int64_t columns, const float* c, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, c += stride) {
    for (int64_t j = 0; j < columns; j += kLines) __builtin_prefetch(c + j, 1);
  }
}

// A square goes to c, `rows` × `columns` of it; `stride` floats from row to row there. `most` grows
// to the greatest magnitude, which are in order as integers.
void write_square(int64_t rows, int64_t columns, const float* sums, bool add, float* c,
                  int64_t stride, Pairs& most) {
  const U u;
  const auto write = [&](const float* from, float* to, int64_t width) {
    const auto mask = hn::FirstN(D(), static_cast<size_t>(width));
    V value = hn::Load(D(), from);
    if (add) value = hn::Add(hn::MaskedLoad(mask, D(), to), value);
    value = hn::IfThenElseZero(mask, value);
    most = hn::Max(most, hn::And(hn::BitCast(u, value), hn::Set(u, 0x7FFFFFFF)));
    if (width == kLines) {
      hn::StoreU(value, D(), to);
    } else {
      hn::BlendedStore(value, mask, D(), to);
    }
  };
  for (int64_t r = 0; r < rows; ++r, c += stride) {
    const float* from = sums + (r / kLines * 2 * kLines + r % kLines) * kLines;
    write(from, c, std::min(kLines, columns));
    if (columns > kLines) write(from + kTileFloats, c + kLines, columns - kLines);
  }
}

// All squares of a block, of `rows` × `columns`.
struct Block {
  const GemmShape& shape;
  const Cut& cut;
  bool accumulate;
  float* sums;

  // `count` tiles along k of all lines, the first of them if `first`, the last if `last`. Returns
  // the greatest magnitude of what has gone to c.
  Pairs multiply(int64_t rows, int64_t columns, int64_t count, bool first, bool last,
                 const float* a, const float* b, float* c) const {
    const int64_t stride = cut.tiles() * kTileFloats;
    Pairs most = hn::Zero(U());
    ShardSquares shard_squares;
    float* square = sums;
    for (int64_t i = 0; i < rows; i += kSquare) {
      for (int64_t j = 0; j < columns; j += kSquare) {
        const int64_t height = std::min(kSquare, rows - i), width = std::min(kSquare, columns - j);
        const float* left = a + i / kLines * stride;
        const float* right = b + j / kLines * stride;
        if (last) fetch_square(height, width, c + i * shape.n + j, shape.n);
        const float* found = square;
        if (cut.shards > 1) {
          found = multiply_shards(height, width, cut, left, right, stride, shard_squares);
        } else {
          square_of(height, width)(count, left, right, stride, !first, square);
        }
        if (last)
          write_square(height, width, found, accumulate, c + i * shape.n + j, shape.n, most);
        if (!first || !last) square += kSquareFloats;  // to be gone on with
      }
    }
    return most;
  }
};

void multiply(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
              float* c, float* scratch) {
  const TileRegisters registers;
  const Cut cut(s);
  const Lines rows{a.data, a.row_stride, a.column_stride, s.m},
      columns{b.data, b.column_stride, b.row_stride, s.n};
  float* const left = scratch;
  float* const right = left + packed_floats(s.m, cut.tiles());
  const Block block{s, cut, accumulate, right + right_floats(s, cut)};
  const int64_t stride = cut.tiles() * kTileFloats;
  Pairs most = hn::Zero(U());
  pack(cut, rows, 0, s.m, 0, cut.tiles(), true, left, stride);
  for (int64_t j = 0; j < s.n; j += kBlock) {
    const int64_t width = std::min(kBlock, s.n - j);
    for (int64_t i = 0; i < s.m; i += kBlock) {
      for (int64_t t = 0; t < cut.tiles(); t += depth_of(cut)) {
        const int64_t count = std::min(depth_of(cut), cut.tiles() - t);
        if (i == 0)
          pack(cut, columns, j, j + width, t, count, false, right + t * kTileFloats, stride);
        most = hn::Max(most, block.multiply(std::min(kBlock, s.m - i), width, count, t == 0,
                                            t + count == cut.tiles(),
                                            left + i / kLines * stride + t * kTileFloats,
                                            right + t * kTileFloats, c + i * s.n + j));
      }
    }
  }
  if (!hn::AllTrue(U(), hn::Lt(most, hn::Set(U(), 0x7F800000)))) raise_overflow();
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
  const Cut cut(shape);
  return static_cast<size_t>(packed_floats(shape.m, cut.tiles()) + right_floats(shape, cut) +
                             kBlockSquares * kBlockSquares * kSquareFloats);
}

void multiply_here(const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                   bool accumulate, float* c, float* scratch) {
  HWY_DYNAMIC_DISPATCH(multiply)(shape, a, b, accumulate, c, scratch);
}

}  // namespace
}  // namespace bf16

const GemmWay kGemmBf16Tiles{bf16::scratch_floats, bf16::multiply_here};

}  // namespace starling
#endif
