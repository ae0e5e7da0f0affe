// How it goes: a vector of columns at a time, and of those a group of rows at a time, whose x and
// dx stay in registers while units pass by. The sums of dw over the rows of earlier groups wait in
// memory. An element of dz is multiplied twice once it is loaded. Units lie too far apart for the
// processor to foresee what comes next of dw, so it is asked for.
#include "tensor/head_gradients.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/head_gradients.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/kernels-inl.h"

#ifndef STARLING_HEAD_GRADIENTS_CONSTANTS
#define STARLING_HEAD_GRADIENTS_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kMostUnits = 12;  // more, and products have enough to multiply at every stop
constexpr int64_t kMostRows = 64;   // likewise
constexpr int64_t kFewestInputs = 256;
constexpr int64_t kAhead = 64;  // floats of dw

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// Rows of a group: twice as many registers, and three to spare.
constexpr int64_t kGroup = HWY_TARGET == HWY_AVX3 ? 8 : 4;

struct Columns {
  int64_t first, count;
};

// Rows first … first + rows − 1 of the columns. `sums` has those of the rows before, for each unit.
template <int rows, bool kPartial>
HWY_INLINE void group_of(const HeadShape& s, const HeadGradients& to, bool accumulate,
                         int64_t first, const Columns& columns, Floats* sums) {
  const float* const x = to.x + first * s.in + columns.first;
  float* const dx = to.dx + first * s.in + columns.first;
  Floats left[rows], moved[rows];
  for (int r = 0; r < rows; ++r) {
    left[r] = load<kPartial>(x + r * s.in, columns.count);
    moved[r] = zeros();
  }
  const bool last = first + rows == s.rows;
  const float* dz = to.dz + first * s.units;
  const float* w = to.w + columns.first;
  float* dw = to.dw + columns.first;
  for (int64_t unit = 0; unit < s.units; ++unit, ++dz, w += s.in, dw += s.in) {
    const Floats weights = load<kPartial>(w, columns.count);
    Floats sum = first == 0 ? zeros() : sums[unit];
    for (int r = 0; r < rows; ++r) {
      const Floats step = all(dz[r * s.units]);
      sum = hn::MulAdd(step, left[r], sum);
      moved[r] = hn::MulAdd(step, weights, moved[r]);
    }
    if (last) {
      __builtin_prefetch(dw + kAhead, 1);
      const Floats before = accumulate ? load<kPartial>(dw, columns.count) : zeros();
      store<kPartial>(hn::Add(before, sum), dw, columns.count);
    } else {
      sums[unit] = sum;
    }
  }
  for (int r = 0; r < rows; ++r)  // none is −0, as in gemm.cc
    store<kPartial>(hn::Add(moved[r], zeros()), dx + r * s.in, columns.count);
}

template <bool kPartial, int most = static_cast<int>(kGroup)>
HWY_INLINE void any_group(int64_t rows, const HeadShape& s, const HeadGradients& to,
                          bool accumulate, int64_t first, const Columns& columns, Floats* sums) {
  if constexpr (most > 1) {
    if (rows < most)
      return any_group<kPartial, most - 1>(rows, s, to, accumulate, first, columns, sums);
  }
  group_of<most, kPartial>(s, to, accumulate, first, columns, sums);
}

template <bool kPartial>
HWY_INLINE void all_rows(const HeadShape& s, const HeadGradients& to, bool accumulate,
                         const Columns& columns) {
  Floats sums[kMostUnits];
  for (int64_t first = 0; first < s.rows; first += kGroup)
    any_group<kPartial>(std::min(kGroup, s.rows - first), s, to, accumulate, first, columns, sums);
}

void head_gradients_target(const HeadShape& s, const HeadGradients& to, bool accumulate) {
  int64_t column = 0;
  for (; column + kLanes <= s.in; column += kLanes)
    all_rows<false>(s, to, accumulate, {column, kLanes});
  if (column < s.in) all_rows<true>(s, to, accumulate, {column, s.in - column});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(head_gradients_target);

bool head_gradients_pay(const HeadShape& shape) {
  return shape.units <= kMostUnits && shape.rows <= kMostRows && shape.in >= kFewestInputs;
}

void head_gradients(const HeadShape& shape, const HeadGradients& to, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(head_gradients_target)(shape, to, accumulate);
}

}  // namespace starling
#endif
