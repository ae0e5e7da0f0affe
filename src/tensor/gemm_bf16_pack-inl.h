// Operands of products of bf16, rounded and packed into tiles, and the flag that their results
// raise; for AVX-512 with instructions for bf16. Include after hwy/highway.h, inside a file that is
// compiled through hwy/foreach_target.h.
#if defined(STARLING_TENSOR_GEMM_BF16_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_GEMM_BF16_PACK_INL_H_
#undef STARLING_TENSOR_GEMM_BF16_PACK_INL_H_
#else
#define STARLING_TENSOR_GEMM_BF16_PACK_INL_H_
#endif

#include <hwy/highway.h>
#include <immintrin.h>

#include "tensor/gemm_bf16_cut.h"
#include "tensor/transpose-inl.h"

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace starling::bf16 {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, 16>;
using U = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;
using Pairs = hn::Vec<U>;

// The first n of 16 elements, zeros behind them; all of them if `whole`.
template <bool whole>
HWY_INLINE V load(const float* p, int64_t n) {
  if (whole || n >= kLines) return hn::LoadU(D(), p);
  return n <= 0 ? hn::Zero(D()) : hn::MaskedLoad(hn::FirstN(D(), static_cast<size_t>(n)), D(), p);
}

// Both rounded to bf16, one after the other. Who multiplies bf16 has this instruction.
HWY_INLINE Pairs rounded(V first, V second) {
  __m512i halves;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(second.raw), "v"(first.raw));
  return Pairs{halves};
}

// 32 elements that lie one after another, as 16 pairs; zeros from the n-th on.
template <bool whole>
HWY_INLINE Pairs pairs_along(const float* p, int64_t n) {
  return rounded(load<whole>(p, n), load<whole>(p + kLines, n - kLines));
}

// Two rows of 16, as 16 pairs; zeros from the n-th on, and for a row that is null.
template <bool whole>
HWY_INLINE Pairs pairs_across(const float* even, const float* odd, int64_t n) {
  const hn::Repartition<uint16_t, D> halves;
  alignas(64) static constexpr uint16_t kTurns[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const V zero = hn::Zero(D());
  const Pairs both = rounded(whole || even != nullptr ? load<whole>(even, n) : zero,
                             whole || odd != nullptr ? load<whole>(odd, n) : zero);
  return Pairs{_mm512_permutexvar_epi16(hn::Load(halves, kTurns).raw, both.raw)};
}

// What a later tile of the same lines, or of the same part of k, will be packed from.
constexpr int64_t kFetchAlong = 4 * kTileDepth, kFetchAcross = 8 * kLines;
template <bool fetches>
HWY_INLINE void fetch(const float* p) {
  if constexpr (fetches) __builtin_prefetch(p);
}

// One tile: lines from `line` on, `depth` elements of each from `k` on, all there if `whole`. Its
// vectors are lines if `by_lines`, else pairs of k.
template <bool whole, bool fetches>
void pack_tile(const Lines& from, int64_t line, int64_t k, int64_t depth, bool by_lines,
               float* to) {
  Pairs v[kLines];
  const int64_t lines = from.count - line;
  const float* at = from.data + line * from.line_stride + k * from.k_stride;
  const bool along = from.k_stride == 1;
  if (along) {
    for (int64_t i = 0; i < kLines; ++i, at += from.line_stride) {
      fetch<fetches>(at + kFetchAlong);
      fetch<fetches>(at + kFetchAlong + kLines);
      v[i] = whole || i < lines ? pairs_along<whole>(at, depth) : hn::Zero(U());
    }
  } else {
    for (int64_t i = 0; i < kLines; ++i, at += 2 * from.k_stride) {
      fetch<fetches>(at + kFetchAcross);
      fetch<fetches>(at + from.k_stride + kFetchAcross);
      v[i] = pairs_across<whole>(whole || 2 * i < depth ? at : nullptr,
                                 whole || 2 * i + 1 < depth ? at + from.k_stride : nullptr, lines);
    }
  }
  if (along != by_lines) starling::HWY_NAMESPACE::transpose_16x16(v);
  for (int64_t i = 0; i < kLines; ++i)
    hn::Store(v[i], U(), reinterpret_cast<uint32_t*>(to) + i * kLines);
}

// Tiles `first` … `first + count` − 1 along k, of the lines from `line` to `end`. The next tile
// along k lies behind a tile, that of the next lines `stride` floats further on.
template <bool fetches = true>
void pack(const Cut& cut, const Lines& from, int64_t line, int64_t end, int64_t first,
          int64_t count, bool by_lines, float* to, int64_t stride) {
  const auto pack_one = [&](int64_t l, int64_t t) {
    const int64_t shard = t / cut.shard_tiles, inside = t % cut.shard_tiles * kTileDepth;
    const int64_t depth = std::min(kTileDepth, cut.shard_depth - inside), at = line + l * kLines;
    const bool whole = depth == kTileDepth && at + kLines <= from.count;
    (whole ? pack_tile<true, fetches>
           : pack_tile<false, fetches>)(from, at, shard * cut.shard_depth + inside, depth, by_lines,
                                        to + l * stride + (t - first) * kTileFloats);
  };
  // In the order in which they lie in memory.
  const int64_t line_tiles = parts_of(end - line, kLines);
  if (from.k_stride == 1) {
    for (int64_t l = 0; l < line_tiles; ++l) {
      for (int64_t t = first; t < first + count; ++t) pack_one(l, t);
    }
  } else {
    for (int64_t t = first; t < first + count; ++t) {
      for (int64_t l = 0; l < line_tiles; ++l) pack_one(l, t);
    }
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling::bf16
HWY_AFTER_NAMESPACE();

#endif

#endif  // STARLING_TENSOR_GEMM_BF16_PACK_INL_H_
