// Squares of 16 × 16 words in registers, turned; for AVX-512, which has enough of them. Include
// after hwy/highway.h, inside a file that is compiled through hwy/foreach_target.h.
#if defined(STARLING_TENSOR_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_TRANSPOSE_INL_H_
#undef STARLING_TENSOR_TRANSPOSE_INL_H_
#else
#define STARLING_TENSOR_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// Element j of vector i becomes element i of vector j.
template <class V>
HWY_INLINE void transpose_16x16(V* v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V> d;
  const hn::RepartitionToWide<hn::DFromV<V>> wide;
  for (int i = 0; i < 16; i += 4) {  // squares of four, in each block of a vector
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, v[i], v[i + 1])),
               b = hn::BitCast(wide, hn::InterleaveLower(d, v[i + 2], v[i + 3])),
               e = hn::BitCast(wide, hn::InterleaveUpper(d, v[i], v[i + 1])),
               f = hn::BitCast(wide, hn::InterleaveUpper(d, v[i + 2], v[i + 3]));
    v[i] = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
    v[i + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
    v[i + 2] = hn::BitCast(d, hn::InterleaveLower(wide, e, f));
    v[i + 3] = hn::BitCast(d, hn::InterleaveUpper(wide, e, f));
  }
  V turned[16];
  for (int i = 0; i < 4; ++i) {  // then the blocks
    const V r0 = v[i], r1 = v[i + 4], r2 = v[i + 8], r3 = v[i + 12];
    const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(r1), r0),
            odd01 = hn::OddEvenBlocks(r1, hn::SwapAdjacentBlocks(r0)),
            even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(r3), r2),
            odd23 = hn::OddEvenBlocks(r3, hn::SwapAdjacentBlocks(r2));
    turned[i] = hn::ConcatLowerLower(d, even23, even01);
    turned[i + 4] = hn::ConcatLowerLower(d, odd23, odd01);
    turned[i + 8] = hn::ConcatUpperUpper(d, even23, even01);
    turned[i + 12] = hn::ConcatUpperUpper(d, odd23, odd01);
  }
  for (int i = 0; i < 16; ++i) v[i] = turned[i];
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#endif

#endif  // STARLING_TENSOR_TRANSPOSE_INL_H_
