// What the kernels share, compiled once for each target of Highway: partial loads, strips of
// columns, exp and the activations. Include after hwy/highway.h, inside a file that is compiled
// through hwy/foreach_target.h. Products and sums are never fused, so that every target gives the
// same bits; NaN comes out where NaN goes in.
#if defined(STARLING_TENSOR_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_KERNELS_INL_H_
#undef STARLING_TENSOR_KERNELS_INL_H_
#else
#define STARLING_TENSOR_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
constexpr FloatTag kFloats;
constexpr int64_t kLanes = HWY_LANES(float);

HWY_INLINE Floats all(float value) { return hn::Set(kFloats, value); }
HWY_INLINE Floats zeros() { return hn::Zero(kFloats); }

// max(x, bound) and min(x, bound) that give x when it is NaN, as x86 does for this order.
HWY_INLINE Floats at_least(Floats bound, Floats x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#else
  return hn::Max(bound, x);
#endif
}
HWY_INLINE Floats at_most(Floats bound, Floats x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#else
  return hn::Min(bound, x);
#endif
}

// The first n < kLanes lanes of memory; the other lanes are zero and no memory behind them is
// touched. (Highway's masked load reads whole vectors below AVX2.)
HWY_INLINE Floats load_first(const float* p, int64_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(kFloats, static_cast<size_t>(n)), kFloats, p);
#else
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::Load(kFloats, lanes);
#endif
}

HWY_INLINE void store_first(Floats v, float* p, int64_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(kFloats, static_cast<size_t>(n)), kFloats, p);
#else
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, kFloats, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

// A whole vector, or its first n lanes when kPartial.
template <bool kPartial>
HWY_INLINE Floats load(const float* p, int64_t n = kLanes) {
  if constexpr (kPartial) return load_first(p, n);
  return hn::LoadU(kFloats, p);
}
template <bool kPartial>
HWY_INLINE void store(Floats v, float* p, int64_t n = kLanes) {
  if constexpr (kPartial) return store_first(v, p, n);
  hn::StoreU(v, kFloats, p);
}

// Cuts `count` elements into vectors: calls body.template run<kPartial>(first, n) for each.
template <class Body>
HWY_INLINE void for_vectors(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body.template run<false>(i, kLanes);
  if (i < count) body.template run<true>(i, count - i);
}

// Cuts columns into strips of kVectors vectors, then single ones, then what is left: calls
// body.template run<vectors, kPartial>(first column, columns). Where strips end has no effect on
// bits as long as the body treats columns independently.
template <int kVectors, class Body>
HWY_INLINE void for_strips(int64_t columns, const Body& body) {
  int64_t c = 0;
  for (; c + kVectors * kLanes <= columns; c += kVectors * kLanes) {
    body.template run<kVectors, false>(c, kVectors * kLanes);
  }
  for (; c + kLanes <= columns; c += kLanes) body.template run<1, false>(c, kLanes);
  if (c < columns) body.template run<1, true>(c, columns - c);
}

// e^x to about 1 ulp: x = n·ln 2 + r, e^r by a polynomial fitted on |r| ≤ ln 2 / 2. The power of
// two is applied in two halves, so that results reach infinity and the subnormals.
HWY_INLINE Floats exp(Floats x) {
  const IntTag ints;
  const Floats clamped = at_least(all(-104.0f), at_most(all(89.0f), x));
  const Floats n = hn::Round(hn::Mul(clamped, all(1.44269504f)));
  // The upper part of ln 2 has few bits, so that n times it is exact.
  Floats r = hn::Sub(clamped, hn::Mul(n, all(0.693359375f)));
  r = hn::Sub(r, hn::Mul(n, all(-2.12194440e-4f)));
  Floats p = all(1.39264004798e-3f);
  p = hn::Add(hn::Mul(p, r), all(8.36335268256e-3f));
  p = hn::Add(hn::Mul(p, r), all(4.16665533108e-2f));
  p = hn::Add(hn::Mul(p, r), all(1.66665759439e-1f));
  p = hn::Add(hn::Mul(p, r), all(0.5f));
  p = hn::Add(hn::Add(hn::Mul(hn::Mul(r, r), p), r), all(1.0f));
  const auto power = hn::ConvertTo(ints, n);
  const auto half = hn::ShiftRight<1>(power);
  const auto bias = hn::Set(ints, 127);
  const auto factor0 = hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto factor1 = hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::Add(hn::Sub(power, half), bias)));
  return hn::Mul(hn::Mul(p, factor0), factor1);
}

// --- activations: forward(x), and backward(known, dy) with the `known` of kernels.h -------------

struct Identity {
  HWY_INLINE Floats forward(Floats x) const { return x; }
};

struct Relu {
  HWY_INLINE Floats forward(Floats x) const { return at_least(zeros(), x); }
  HWY_INLINE Floats backward(Floats y, Floats dy) const {
    return hn::IfThenElseZero(hn::Gt(y, zeros()), dy);
  }
};

struct LeakyRelu {
  float slope;
  HWY_INLINE Floats forward(Floats x) const {
    return hn::IfThenElse(hn::Lt(x, zeros()), hn::Mul(all(slope), x), x);
  }
  HWY_INLINE Floats backward(Floats y, Floats dy) const {
    return hn::IfThenElse(hn::Gt(y, zeros()), dy, hn::Mul(all(slope), dy));
  }
};

struct Sigmoid {
  // e^−|x| ≤ 1, so that neither end overflows and small results keep their digits.
  HWY_INLINE Floats forward(Floats x) const {
    const Floats e = exp(hn::Neg(hn::Abs(x)));
    const Floats top = hn::IfThenElse(hn::Lt(x, zeros()), e, all(1.0f));
    return hn::Div(top, hn::Add(all(1.0f), e));
  }
  HWY_INLINE Floats backward(Floats y, Floats dy) const {
    return hn::Mul(dy, hn::Mul(y, hn::Sub(all(1.0f), y)));
  }
};

struct Tanh {
  // 1 − 2 / (e^2|x| + 1), which loses digits near 0: there an odd polynomial, fitted on |x| ≤ 0.6.
  HWY_INLINE Floats forward(Floats x) const {
    const Floats a = hn::Abs(x);
    const Floats u = hn::Mul(x, x);
    Floats p = all(2.3707656405e-3f);
    p = hn::Add(hn::Mul(p, u), all(-8.41007080153e-3f));
    p = hn::Add(hn::Mul(p, u), all(2.17883219971e-2f));
    p = hn::Add(hn::Mul(p, u), all(-5.39615517813e-2f));
    p = hn::Add(hn::Mul(p, u), all(1.33333128669e-1f));
    p = hn::Add(hn::Mul(p, u), all(-3.33333332312e-1f));
    const Floats near = hn::Add(hn::Mul(hn::Mul(u, x), p), x);
    const Floats e = exp(hn::Add(a, a));
    const Floats far = hn::Sub(all(1.0f), hn::Div(all(2.0f), hn::Add(e, all(1.0f))));
    return hn::IfThenElse(hn::Lt(a, all(0.6f)), near, hn::CopySignToAbs(far, x));
  }
  HWY_INLINE Floats backward(Floats y, Floats dy) const {
    return hn::Mul(dy, hn::Sub(all(1.0f), hn::Mul(y, y)));
  }
};

// x · Φ(x). With a = |x|, Φ(−a) = e^(−a²/2) · t · G(t), t = 1 / (1 + 0.26 a), where G is a
// polynomial fitted to a relative error of 1e-7 up to a = 15; Φ(x) and the density φ(x) share the
// exponential.
struct Gelu {
  struct Normal {
    Floats x;    // within ±15: further out Φ is 0 or 1 and φ is 0, and 0 · ∞ must not arise
    Floats phi;  // Φ(x)
    Floats density;  // e^(−x²/2)
  };
  HWY_INLINE Normal normal(Floats x) const {
    const Floats limited = at_least(all(-15.0f), at_most(all(15.0f), x));
    const Floats density = exp(hn::Mul(all(-0.5f), hn::Mul(limited, limited)));
    const Floats a = hn::Abs(limited);
    const Floats t = hn::Div(all(1.0f), hn::Add(all(1.0f), hn::Mul(all(0.26f), a)));
    Floats g = all(0.0318199957126f);
    g = hn::Add(hn::Mul(g, t), all(-0.158967343703f));
    g = hn::Add(hn::Mul(g, t), all(0.263600795491f));
    g = hn::Add(hn::Mul(g, t), all(-0.164088596099f));
    g = hn::Add(hn::Mul(g, t), all(0.169492490343f));
    g = hn::Add(hn::Mul(g, t), all(0.047631041345f));
    g = hn::Add(hn::Mul(g, t), all(0.103833219167f));
    g = hn::Add(hn::Mul(g, t), all(0.102913885888f));
    g = hn::Add(hn::Mul(g, t), all(0.103764513635f));
    const Floats tail = hn::Mul(hn::Mul(g, t), density);
    return {limited, hn::IfThenElse(hn::Lt(x, zeros()), tail, hn::Sub(all(1.0f), tail)), density};
  }
  HWY_INLINE Floats forward(Floats x) const {
    return hn::Mul(at_least(all(-15.0f), x), normal(x).phi);
  }
  HWY_INLINE Floats backward(Floats x, Floats dy) const {
    const Normal n = normal(x);
    const Floats density = hn::Mul(n.density, all(0.398942280f));
    return hn::Mul(dy, hn::Add(n.phi, hn::Mul(n.x, density)));
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#endif  // STARLING_TENSOR_KERNELS_INL_H_
