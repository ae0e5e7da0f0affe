#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// Sixteen consecutive elements of a row: as many vectors as that takes. Sums of a row go element
// by element into sixteen accumulators, so their bits don't depend on the width of vectors. Loops
// over vectors are unrolled by four, which is all of them but for the scalar target.
constexpr int64_t kBlock = 16;
constexpr int kVectors = static_cast<int>(kBlock / kLanes);

struct Block {
  Floats v[kVectors];
};

HWY_INLINE Block fill(float value) {
  Block b;
  HWY_UNROLL(4)
  for (int j = 0; j < kVectors; ++j) b.v[j] = all(value);
  return b;
}

// The first n of sixteen elements; the rest are `padding`.
template <bool kPartial>
HWY_INLINE Block load_block(const float* p, int64_t n, float padding) {
  Block b;
  HWY_UNROLL(4)
  for (int j = 0; j < kVectors; ++j, p += kLanes, n -= kLanes) {
    if (!kPartial || n >= kLanes) {
      b.v[j] = hn::LoadU(kFloats, p);
    } else if (n <= 0) {
      b.v[j] = all(padding);
    } else {
      const auto inside = hn::FirstN(kFloats, static_cast<size_t>(n));
      b.v[j] = hn::IfThenElse(inside, load_first(p, n), all(padding));
    }
  }
  return b;
}

template <bool kPartial>
HWY_INLINE void store_block(const Block& b, float* p, int64_t n) {
  HWY_UNROLL(4)
  for (int j = 0; j < kVectors; ++j, p += kLanes, n -= kLanes) {
    if (!kPartial || n >= kLanes) {
      hn::StoreU(b.v[j], kFloats, p);
    } else if (n > 0) {
      store_first(b.v[j], p, n);
    }
  }
}

// Accumulator i joins i + 8, then i + 4, i + 2, i + 1: SumOfLanes goes on halving in that order.
HWY_INLINE float sum(Block b) {
  HWY_UNROLL(4)
  for (int half = kVectors / 2; half > 0; half /= 2) {
    HWY_UNROLL(4)
    for (int j = 0; j < half; ++j) b.v[j] = hn::Add(b.v[j], b.v[j + half]);
  }
  return hn::GetLane(hn::SumOfLanes(kFloats, b.v[0]));
}

HWY_INLINE float maximum(Block b) {
  HWY_UNROLL(4)
  for (int j = 1; j < kVectors; ++j) b.v[0] = hn::Max(b.v[0], b.v[j]);
  return hn::GetLane(hn::MaxOfLanes(kFloats, b.v[0]));
}

// Calls body.template run<kPartial>(first, n) for each block of a row.
template <class Body>
HWY_INLINE void for_blocks(int64_t columns, Body& body) {
  int64_t i = 0;
  for (; i + kBlock <= columns; i += kBlock) body.template run<false>(i, kBlock);
  if (i < columns) body.template run<true>(i, columns - i);
}

struct RowMaximum {
  const float* x;
  Block best;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) {
    const Block b = load_block<kPartial>(x + i, n, -std::numeric_limits<float>::infinity());
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) best.v[j] = hn::Max(best.v[j], b.v[j]);
  }
};

HWY_INLINE Block exp_minus(const Block& b, float shift) {
  Block e;
  HWY_UNROLL(4)
  for (int j = 0; j < kVectors; ++j) e.v[j] = exp(hn::Sub(b.v[j], all(shift)));
  return e;
}

// Σ exp(x − shift), each term stored in y if there is one. Padding of −∞ adds 0.
struct RowExp {
  const float* x;
  float shift;
  float* y;
  Block sums;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) {
    const Block b = load_block<kPartial>(x + i, n, -std::numeric_limits<float>::infinity());
    const Block e = exp_minus(b, shift);
    if (y) store_block<kPartial>(e, y + i, n);
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) sums.v[j] = hn::Add(sums.v[j], e.v[j]);
  }
};

struct RowScale {
  float factor;
  float* y;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    store<kPartial>(hn::Mul(load<kPartial>(y + i, n), all(factor)), y + i, n);
  }
};

struct RowDot {
  const float* a;
  const float* b;
  Block sums;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) {
    const Block p = load_block<kPartial>(a + i, n, 0.0f);
    const Block q = load_block<kPartial>(b + i, n, 0.0f);
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) sums.v[j] = hn::Add(sums.v[j], hn::Mul(p.v[j], q.v[j]));
  }
};

struct RowSoftmaxBackward {
  const float* y;
  const float* dy;
  float dot;
  float* dx;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const Floats centred = hn::Sub(load<kPartial>(dy + i, n), all(dot));
    store<kPartial>(hn::Mul(load<kPartial>(y + i, n), centred), dx + i, n);
  }
};

struct ExpSum {
  float maximum, sum;
};

// y (unless null) = `factor` times the softmax of a row; returns the sum that it was divided by.
// A row of one block stays in registers, with the same bits as a longer one would have.
HWY_INLINE ExpSum softmax_row(int64_t columns, const float* x, float factor, float* y) {
  if (columns <= kBlock) {
    const Block b = load_block<true>(x, columns, -std::numeric_limits<float>::infinity());
    const float shift = maximum(b);
    Block e = exp_minus(b, shift);
    const float total = sum(e);
    if (y) {
      HWY_UNROLL(4)
      for (int j = 0; j < kVectors; ++j) e.v[j] = hn::Mul(e.v[j], all(factor / total));
      store_block<true>(e, y, columns);
    }
    return {shift, total};
  }
  RowMaximum best{x, fill(-std::numeric_limits<float>::infinity())};
  for_blocks(columns, best);
  const float shift = maximum(best.best);
  RowExp exps{x, shift, y, fill(0.0f)};
  for_blocks(columns, exps);
  const float total = sum(exps.sums);
  if (y) for_vectors(columns, RowScale{factor / total, y});
  return {shift, total};
}

}  // namespace

void softmax_forward(int64_t rows, int64_t columns, const float* x, float* y) {
  for (int64_t r = 0; r < rows; ++r) softmax_row(columns, x + r * columns, 1.0f, y + r * columns);
}

void softmax_backward(int64_t rows, int64_t columns, const float* y, const float* dy, float* dx) {
  for (int64_t r = 0; r < rows; ++r, y += columns, dy += columns, dx += columns) {
    RowDot dot{y, dy, fill(0.0f)};
    for_blocks(columns, dot);
    for_vectors(columns, RowSoftmaxBackward{y, dy, sum(dot.sums), dx});
  }
}

void softmax_cross_entropy(int64_t rows, int64_t columns, const float* x, const float* labels,
                           float scale, float* losses, float* dx) {
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    const auto label = static_cast<int64_t>(labels[r]);
    const float wanted = x[label];
    const ExpSum row = softmax_row(columns, x, scale, dx);
    losses[r] = std::log(row.sum) + (row.maximum - wanted);
    if (dx) {
      dx[label] -= scale;
      dx += columns;
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(softmax_forward);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(softmax_cross_entropy);

void softmax_forward(int64_t rows, int64_t columns, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(softmax_forward)(rows, columns, x, y);
}

void softmax_backward(int64_t rows, int64_t columns, const float* y, const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(rows, columns, y, dy, dx);
}

void softmax_cross_entropy(int64_t rows, int64_t columns, const float* x, const float* labels,
                           float scale, float* losses, float* dx) {
  HWY_DYNAMIC_DISPATCH(softmax_cross_entropy)(rows, columns, x, labels, scale, losses, dx);
}

}  // namespace starling
#endif  // HWY_ONCE
