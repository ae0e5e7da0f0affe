#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;
constexpr WordTag kWords;
constexpr IntTag kInts;

// As many lanes of a narrower type as there are floats in a vector, or the first n of them.
template <bool kPartial, class T>
HWY_INLINE hn::Vec<hn::Rebind<T, FloatTag>> load_narrow(const T* p, int64_t n) {
  const hn::Rebind<T, FloatTag> tag;
  if constexpr (kPartial) {
    T lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return hn::LoadU(tag, lanes);
  }
  return hn::LoadU(tag, p);
}

// Rounded to the nearest value with 16 bits, in the upper half of the word; ties to even. A NaN
// is made quiet instead, since rounding could carry it into infinity.
HWY_INLINE Words rounded_bf16(Floats x) {
  const Words bits = hn::BitCast(kWords, x);
  const Words odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kWords, 1));
  const Words rounded = hn::Add(bits, hn::Add(odd, hn::Set(kWords, 0x7FFF)));
  const auto nan = hn::RebindMask(kWords, hn::IsNaN(x));
  return hn::IfThenElse(nan, hn::Or(bits, hn::Set(kWords, 0x400000)), rounded);
}

struct ToBf16 {
  const float* src;
  uint16_t* dst;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const hn::Rebind<uint16_t, FloatTag> tag;
    const Words upper = hn::ShiftRight<16>(rounded_bf16(load<kPartial>(src + i, n)));
    const auto narrow = hn::DemoteTo(tag, hn::BitCast(kInts, upper));
    if constexpr (kPartial) {
      uint16_t lanes[kLanes];
      hn::StoreU(narrow, tag, lanes);
      for (int64_t k = 0; k < n; ++k) dst[i + k] = lanes[k];
    } else {
      hn::StoreU(narrow, tag, dst + i);
    }
  }
};

struct FromBf16 {
  const uint16_t* src;
  float* dst;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const Words wide = hn::PromoteTo(kWords, load_narrow<kPartial>(src + i, n));
    store<kPartial>(hn::BitCast(kFloats, hn::ShiftLeft<16>(wide)), dst + i, n);
  }
};

struct RoundBf16 {
  const float* src;
  float* dst;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const Words upper =
        hn::And(rounded_bf16(load<kPartial>(src + i, n)), hn::Set(kWords, 0xFFFF0000u));
    store<kPartial>(hn::BitCast(kFloats, upper), dst + i, n);
  }
};

struct FromBytes {
  float factor;
  const uint8_t* src;
  float* dst;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const auto wide = hn::PromoteTo(kInts, load_narrow<kPartial>(src + i, n));
    store<kPartial>(hn::Mul(hn::ConvertTo(kFloats, wide), all(factor)), dst + i, n);
  }
};

}  // namespace

void to_bf16(int64_t n, const float* src, uint16_t* dst) { for_vectors(n, ToBf16{src, dst}); }

void from_bf16(int64_t n, const uint16_t* src, float* dst) { for_vectors(n, FromBf16{src, dst}); }

void round_bf16(int64_t n, const float* src, float* dst) { for_vectors(n, RoundBf16{src, dst}); }

void from_u8(int64_t n, float factor, const uint8_t* src, float* dst) {
  for_vectors(n, FromBytes{factor, src, dst});
}

bool all_finite(int64_t n, const float* x) {
  // As integers, magnitudes are in order, and those from infinity on are not finite.
  const auto magnitude = hn::Set(kInts, 0x7FFFFFFF);
  auto most0 = hn::Zero(kInts), most1 = hn::Zero(kInts);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most0 = hn::Max(most0, hn::And(hn::BitCast(kInts, load<false>(x + i)), magnitude));
    most1 = hn::Max(most1, hn::And(hn::BitCast(kInts, load<false>(x + i + kLanes)), magnitude));
  }
  if (i + kLanes <= n) {
    most0 = hn::Max(most0, hn::And(hn::BitCast(kInts, load<false>(x + i)), magnitude));
    i += kLanes;
  }
  if (i < n)
    most1 = hn::Max(most1, hn::And(hn::BitCast(kInts, load<true>(x + i, n - i)), magnitude));
  return hn::AllTrue(kInts, hn::Lt(hn::Max(most0, most1), hn::Set(kInts, 0x7F800000)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(to_bf16);
HWY_EXPORT(from_bf16);
HWY_EXPORT(round_bf16);
HWY_EXPORT(from_u8);
HWY_EXPORT(all_finite);

void to_bf16(int64_t n, const float* src, uint16_t* dst) {
  HWY_DYNAMIC_DISPATCH(to_bf16)(n, src, dst);
}

void from_bf16(int64_t n, const uint16_t* src, float* dst) {
  HWY_DYNAMIC_DISPATCH(from_bf16)(n, src, dst);
}

void round_bf16(int64_t n, const float* src, float* dst) {
  HWY_DYNAMIC_DISPATCH(round_bf16)(n, src, dst);
}

void from_u8(int64_t n, float factor, const uint8_t* src, float* dst) {
  HWY_DYNAMIC_DISPATCH(from_u8)(n, factor, src, dst);
}

bool all_finite(int64_t n, const float* x) { return HWY_DYNAMIC_DISPATCH(all_finite)(n, x); }

}  // namespace starling
#endif  // HWY_ONCE
