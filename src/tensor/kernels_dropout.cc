#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "base/random.h"
#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// One row: which elements are kept follows from the sample, and from 24 bits of each number.
struct DropoutRow {
  RandomKey key;
  uint64_t sample;
  int32_t threshold;  // an element is kept when its 24 bits are at least this
  float factor;
  int64_t elements;
  const float* x;
  float* y;
  void run() const;
};

#if HWY_TARGET == HWY_SCALAR

void DropoutRow::run() const {
  for (int64_t e = 0; e < elements; ++e) {
    const RandomBlock bits =
        philox({static_cast<uint32_t>(e / 4), key.a, static_cast<uint32_t>(sample),
                static_cast<uint32_t>(sample >> 32)},
               key.key);
    const bool kept = static_cast<int32_t>(bits[e % 4] >> 8) >= threshold;
    y[e] = kept ? x[e] * factor : 0.0f;
  }
}

#else

using WideTag = hn::Repartition<uint64_t, FloatTag>;
using NarrowTag = hn::Repartition<uint32_t, FloatTag>;
using Wide = hn::Vec<WideTag>;
constexpr WideTag kWide;
constexpr NarrowTag kNarrow;
constexpr int64_t kWideLanes = kLanes / 2;

// Philox4x32-10 of one block per 64-bit lane. The upper half of a lane is whatever it becomes:
// the 32 × 32 → 64 product reads lower halves only.
struct PhiloxState {
  Wide c0, c1, c2, c3;

  HWY_INLINE void round(Wide k0, Wide k1) {
    const auto m0 = hn::Set(kNarrow, 0xD2511F53u), m1 = hn::Set(kNarrow, 0xCD9E8D57u);
    const Wide p0 = hn::MulEven(hn::BitCast(kNarrow, c0), m0);
    const Wide p1 = hn::MulEven(hn::BitCast(kNarrow, c2), m1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), k0);
    c1 = p1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), k1);
    c3 = p0;
  }
};

// Keeps or zeroes the elements of one vector from their random bits.
struct DropoutVector {
  hn::Mask<FloatTag> keep;
  float factor;
  template <bool kPartial>
  HWY_INLINE void run(const float* x, float* y, int64_t n) const {
    const Floats v = hn::Mul(load<kPartial>(x, n), all(factor));
    store<kPartial>(hn::IfThenElseZero(keep, v), y, n);
  }
};

// The blocks of a state, two vectors of elements from `e` on. Interleaving works inside 128 bits:
// so lanes were given their blocks such that the lower halves hold the first ones.
HWY_INLINE void apply(const PhiloxState& s, const DropoutRow& row, int64_t e) {
  const Wide front = hn::BitCast(kWide, hn::OddEven(hn::BitCast(kNarrow, hn::ShiftLeft<32>(s.c1)),
                                                    hn::BitCast(kNarrow, s.c0)));
  const Wide back = hn::BitCast(kWide, hn::OddEven(hn::BitCast(kNarrow, hn::ShiftLeft<32>(s.c3)),
                                                   hn::BitCast(kNarrow, s.c2)));
  const Wide bits[2] = {hn::InterleaveLower(kWide, front, back),
                        hn::InterleaveUpper(kWide, front, back)};
  const auto below = hn::Set(IntTag(), row.threshold - 1);
  HWY_UNROLL(2)
  for (int half = 0; half < 2; ++half, e += kLanes) {
    const auto uniform = hn::BitCast(IntTag(), hn::ShiftRight<8>(hn::BitCast(kNarrow, bits[half])));
    const DropoutVector v{hn::RebindMask(kFloats, hn::Gt(uniform, below)), row.factor};
    if (e + kLanes <= row.elements) {
      v.run<false>(row.x + e, row.y + e, kLanes);
    } else if (e < row.elements) {
      v.run<true>(row.x + e, row.y + e, row.elements - e);
    }
  }
}

void DropoutRow::run() const {
  // Lane j of a state works on block j / 2, and odd lanes half a state further.
  const Wide j = hn::Iota(kWide, 0);
  const Wide odd = hn::And(j, hn::Set(kWide, 1));
  const Wide places = hn::Add(
      hn::ShiftRight<1>(j), hn::And(hn::Sub(hn::Zero(kWide), odd), hn::Set(kWide, kWideLanes / 2)));
  const Wide a = hn::Set(kWide, key.a);
  const Wide low = hn::Set(kWide, sample), high = hn::Set(kWide, sample >> 32);
  const Wide step0 = hn::Set(kWide, 0x9E3779B9u), step1 = hn::Set(kWide, 0xBB67AE85u);
  // Two states at a time hide the latency of the products.
  for (int64_t e = 0; e < elements; e += 4 * kLanes) {
    const Wide block = hn::Add(places, hn::Set(kWide, static_cast<uint64_t>(e / 4)));
    PhiloxState s{block, a, low, high};
    PhiloxState t{hn::Add(block, hn::Set(kWide, kWideLanes)), a, low, high};
    Wide k0 = hn::Set(kWide, key.key), k1 = hn::Set(kWide, key.key >> 32);
    for (int round = 0; round < 10; ++round) {
      s.round(k0, k1);
      t.round(k0, k1);
      k0 = hn::Add(k0, step0);
      k1 = hn::Add(k1, step1);
    }
    apply(s, *this, e);
    apply(t, *this, e + 2 * kLanes);
  }
}

#endif

}  // namespace

void dropout(int64_t rows, int64_t elements, float rate, RandomKey key, const uint64_t* samples,
             const float* x, float* y) {
  // u ≥ rate with u = bits · 2⁻²⁴ holds exactly when bits ≥ ⌈rate · 2²⁴⌉.
  const auto threshold = static_cast<int32_t>(std::ceil(static_cast<double>(rate) * 0x1p24));
  const float factor = 1.0f / (1.0f - rate);
  for (int64_t r = 0; r < rows; ++r) {
    DropoutRow{key, samples[r], threshold, factor, elements, x + r * elements, y + r * elements}
        .run();
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(dropout);

void dropout(int64_t rows, int64_t elements, float rate, RandomKey key, const uint64_t* samples,
             const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(dropout)(rows, elements, rate, key, samples, x, y);
}

}  // namespace starling
#endif  // HWY_ONCE
