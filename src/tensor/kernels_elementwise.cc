#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

template <class F>
struct Forward {
  F f;
  const float* x;
  float* y;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    store<kPartial>(f.forward(load<kPartial>(x + i, n)), y + i, n);
  }
};

template <class F>
struct Backward {
  F f;
  const float* known;
  const float* dy;
  float* dx;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    store<kPartial>(f.backward(load<kPartial>(known + i, n), load<kPartial>(dy + i, n)), dx + i, n);
  }
};

struct AddTwo {
  const float* a;
  const float* b;
  float* c;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    store<kPartial>(hn::Add(load<kPartial>(a + i, n), load<kPartial>(b + i, n)), c + i, n);
  }
};

// Magnitudes are in order as integers, NaN behind infinity.
struct CopyAndMost {
  const float* src;
  float* dst;
  hn::Vec<IntTag>* most;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const Floats value = load<kPartial>(src + i, n);
    store<kPartial>(value, dst + i, n);
    *most = hn::Max(*most, hn::BitCast(IntTag(), hn::Abs(value)));
  }
};

struct Scale {
  float factor;
  const float* src;
  float* dst;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    store<kPartial>(hn::Mul(all(factor), load<kPartial>(src + i, n)), dst + i, n);
  }
};

}  // namespace

void elementwise_forward(Elementwise kind, float slope, int64_t n, const float* x, float* y) {
  switch (kind) {
    case Elementwise::kRelu:
      return for_vectors(n, Forward<Relu>{{}, x, y});
    case Elementwise::kLeakyRelu:
      return for_vectors(n, Forward<LeakyRelu>{{slope}, x, y});
    case Elementwise::kGelu:
      return for_vectors(n, Forward<Gelu>{{}, x, y});
    case Elementwise::kSigmoid:
      return for_vectors(n, Forward<Sigmoid>{{}, x, y});
    case Elementwise::kTanh:
      return for_vectors(n, Forward<Tanh>{{}, x, y});
  }
}

void elementwise_backward(Elementwise kind, float slope, int64_t n, const float* known,
                          const float* dy, float* dx) {
  switch (kind) {
    case Elementwise::kRelu:
      return for_vectors(n, Backward<Relu>{{}, known, dy, dx});
    case Elementwise::kLeakyRelu:
      return for_vectors(n, Backward<LeakyRelu>{{slope}, known, dy, dx});
    case Elementwise::kGelu:
      return for_vectors(n, Backward<Gelu>{{}, known, dy, dx});
    case Elementwise::kSigmoid:
      return for_vectors(n, Backward<Sigmoid>{{}, known, dy, dx});
    case Elementwise::kTanh:
      return for_vectors(n, Backward<Tanh>{{}, known, dy, dx});
  }
}

void add(int64_t n, const float* a, const float* b, float* c) { for_vectors(n, AddTwo{a, b, c}); }

void scale(int64_t n, float factor, const float* src, float* dst) {
  for_vectors(n, Scale{factor, src, dst});
}

float copy_and_most(int64_t n, const float* src, float* dst) {
  hn::Vec<IntTag> most = hn::Zero(IntTag());
  for_vectors(n, CopyAndMost{src, dst, &most});
  return hn::GetLane(hn::BitCast(kFloats, hn::MaxOfLanes(IntTag(), most)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(elementwise_forward);
HWY_EXPORT(elementwise_backward);
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(copy_and_most);

void elementwise_forward(Elementwise kind, float slope, int64_t n, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(elementwise_forward)(kind, slope, n, x, y);
}

void elementwise_backward(Elementwise kind, float slope, int64_t n, const float* known,
                          const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(elementwise_backward)(kind, slope, n, known, dy, dx);
}

void add(int64_t n, const float* a, const float* b, float* c) {
  HWY_DYNAMIC_DISPATCH(add)(n, a, b, c);
}

void scale(int64_t n, float factor, const float* src, float* dst) {
  HWY_DYNAMIC_DISPATCH(scale)(n, factor, src, dst);
}

float copy_and_most(int64_t n, const float* src, float* dst) {
  return HWY_DYNAMIC_DISPATCH(copy_and_most)(n, src, dst);
}

}  // namespace starling
#endif  // HWY_ONCE
