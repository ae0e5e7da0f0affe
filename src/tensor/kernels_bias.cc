#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_bias.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// One row of y = f(y + bias + residual).
template <class F, bool kBias, bool kResidual>
struct BiasRow {
  F f;
  const float* bias;
  const float* residual;
  float* y;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    Floats v = load<kPartial>(y + i, n);
    if constexpr (kBias) v = hn::Add(v, load<kPartial>(bias + i, n));
    if constexpr (kResidual) v = hn::Add(v, load<kPartial>(residual + i, n));
    store<kPartial>(f.forward(v), y + i, n);
  }
};

template <class F>
void bias_rows(F f, int64_t rows, int64_t columns, const float* bias, const float* residual,
               float* y) {
  if (bias == nullptr) {  // then rows are of no interest
    const int64_t n = rows * columns;
    if (residual) return for_vectors(n, BiasRow<F, false, true>{f, nullptr, residual, y});
    return for_vectors(n, BiasRow<F, false, false>{f, nullptr, nullptr, y});
  }
  for (int64_t r = 0; r < rows; ++r, y += columns) {
    if (residual) {
      for_vectors(columns, BiasRow<F, true, true>{f, bias, residual + r * columns, y});
    } else {
      for_vectors(columns, BiasRow<F, true, false>{f, bias, nullptr, y});
    }
  }
}

// The same for an f so long that a row in cache may as well be gone over twice: one copy of its
// code is enough.
template <class F>
void bias_rows_then(F f, int64_t rows, int64_t columns, const float* bias, const float* residual,
                    float* y) {
  for (int64_t r = 0; r < rows; ++r, y += columns) {
    if (bias || residual) {
      bias_rows(Identity{}, 1, columns, bias, residual ? residual + r * columns : nullptr, y);
    }
    for_vectors(columns, BiasRow<F, false, false>{f, nullptr, nullptr, y});
  }
}

// Rows are summed in blocks, and block sums are added to db in order: it keeps the block in cache
// while strips of columns go over it, and the error of a sum of many rows small.
constexpr int64_t kBlockRows = 256;

// What is summed: dy itself, or dy · f′, which is stored on the way.
struct Plain {
  const float* dy;
  template <bool kPartial>
  HWY_INLINE Floats term(int64_t i, int64_t n) const {
    return load<kPartial>(dy + i, n);
  }
};

template <class F>
struct Differentiated {
  F f;
  const float* known;
  const float* dy;
  float* dx;
  template <bool kPartial>
  HWY_INLINE Floats term(int64_t i, int64_t n) const {
    const Floats v = f.backward(load<kPartial>(known + i, n), load<kPartial>(dy + i, n));
    store<kPartial>(v, dx + i, n);
    return v;
  }
};

// Sums rows [first, last) of a strip of columns: even and odd rows apart, then together.
template <class Term>
struct SumStrip {
  Term terms;
  int64_t columns, first, last;
  bool accumulate;
  float* db;
  template <int kVectors, bool kPartial>
  HWY_NOINLINE void run(int64_t c, int64_t n) const {
    // Copies, since stores of vectors might change *this for all the compiler knows.
    const Term term_of = terms;
    const int64_t stride = columns, end = last;
    Floats even[kVectors], odd[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = zeros();
    int64_t r = first;
    for (; r + 2 <= end; r += 2) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const int64_t i = r * stride + c + v * kLanes;
        even[v] = hn::Add(even[v], term_of.template term<kPartial>(i, n));
        odd[v] = hn::Add(odd[v], term_of.template term<kPartial>(i + stride, n));
      }
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = c + v * kLanes;
      if (r < end) even[v] = hn::Add(even[v], term_of.template term<kPartial>(r * stride + i, n));
      Floats sum = hn::Add(even[v], odd[v]);
      if (accumulate) sum = hn::Add(load<kPartial>(db + i, n), sum);
      store<kPartial>(sum, db + i, n);
    }
  }
};

template <int kVectors, class Term>
void sum_columns(Term terms, int64_t rows, int64_t columns, bool accumulate, float* db) {
  if (rows == 0 && !accumulate) std::fill(db, db + columns, 0.0f);
  for (int64_t r = 0; r < rows; r += kBlockRows) {
    for_strips<kVectors>(columns, SumStrip<Term>{terms, columns, r, std::min(rows, r + kBlockRows),
                                                 accumulate || r > 0, db});
  }
}

}  // namespace

void bias_activate(int64_t rows, int64_t columns, const float* bias, const float* residual,
                   bool activate, Elementwise kind, float slope, float* y) {
  if (!activate) {
    if (bias || residual) bias_rows(Identity{}, rows, columns, bias, residual, y);
    return;
  }
  switch (kind) {
    case Elementwise::kRelu:
      return bias_rows(Relu{}, rows, columns, bias, residual, y);
    case Elementwise::kLeakyRelu:
      return bias_rows(LeakyRelu{slope}, rows, columns, bias, residual, y);
    case Elementwise::kGelu:
      return bias_rows_then(Gelu{}, rows, columns, bias, residual, y);
    case Elementwise::kSigmoid:
      return bias_rows_then(Sigmoid{}, rows, columns, bias, residual, y);
    case Elementwise::kTanh:
      return bias_rows_then(Tanh{}, rows, columns, bias, residual, y);
  }
}

void column_sums(int64_t rows, int64_t columns, const float* dy, bool accumulate, float* db) {
  sum_columns<4>(Plain{dy}, rows, columns, accumulate, db);
}

void elementwise_backward_column_sums(Elementwise kind, float slope, int64_t rows, int64_t columns,
                                      const float* known, const float* dy, float* dx,
                                      bool accumulate, float* db) {
  switch (kind) {
    case Elementwise::kRelu:
      return sum_columns<4>(Differentiated<Relu>{{}, known, dy, dx}, rows, columns, accumulate, db);
    case Elementwise::kLeakyRelu:
      return sum_columns<4>(Differentiated<LeakyRelu>{{slope}, known, dy, dx}, rows, columns,
                            accumulate, db);
    case Elementwise::kGelu:
      return sum_columns<1>(Differentiated<Gelu>{{}, known, dy, dx}, rows, columns, accumulate, db);
    case Elementwise::kSigmoid:
      return sum_columns<4>(Differentiated<Sigmoid>{{}, known, dy, dx}, rows, columns, accumulate,
                            db);
    case Elementwise::kTanh:
      return sum_columns<4>(Differentiated<Tanh>{{}, known, dy, dx}, rows, columns, accumulate, db);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(bias_activate);
HWY_EXPORT(column_sums);
HWY_EXPORT(elementwise_backward_column_sums);

void bias_activate(int64_t rows, int64_t columns, const float* bias, const float* residual,
                   bool activate, Elementwise kind, float slope, float* y) {
  HWY_DYNAMIC_DISPATCH(bias_activate)
  (rows, columns, bias, residual, activate, kind, slope, y);
}

void column_sums(int64_t rows, int64_t columns, const float* dy, bool accumulate, float* db) {
  HWY_DYNAMIC_DISPATCH(column_sums)(rows, columns, dy, accumulate, db);
}

void elementwise_backward_column_sums(Elementwise kind, float slope, int64_t rows, int64_t columns,
                                      const float* known, const float* dy, float* dx,
                                      bool accumulate, float* db) {
  HWY_DYNAMIC_DISPATCH(elementwise_backward_column_sums)
  (kind, slope, rows, columns, known, dy, dx, accumulate, db);
}

}  // namespace starling
#endif  // HWY_ONCE
