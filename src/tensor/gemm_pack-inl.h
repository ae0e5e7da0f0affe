// What products of f32 share: vectors, operands that are packed by turning them, and asking memory
// for what is packed next. Include after hwy/highway.h, inside a file that is compiled through
// hwy/foreach_target.h.
#if defined(STARLING_TENSOR_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_GEMM_PACK_INL_H_
#undef STARLING_TENSOR_GEMM_PACK_INL_H_
#else
#define STARLING_TENSOR_GEMM_PACK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "tensor/gemm.h"
#include "tensor/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kLine = 16;  // floats of a cache line

// Four columns of four: to[j · to_stride + i] = from[i · from_stride + j].
#if HWY_TARGET == HWY_SCALAR
void transpose_4x4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}
#else
HWY_INLINE void transpose_4x4(const float* from, int64_t from_stride, float* to,
                              int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride),
             r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)),
             b = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1)),
             f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, to + 3 * to_stride);
}
#endif

// The columns of b from column `from` on.
MatrixView columns_of(const MatrixView& b, int64_t from) {
  return {b.data + from * b.column_stride, b.row_stride, b.column_stride};
}

// Asks memory, little by little, for what is packed next: `depth` of k by `columns` columns of b,
// of up to `width`, in `parts` parts.
class Fetch {
 public:
  Fetch(const MatrixView& b, int64_t depth, int64_t columns, int64_t width, int64_t parts)
      : by_rows_(b.column_stride == 1),
        line_(b.data),
        stride_(by_rows_ ? b.row_stride : b.column_stride),
        lines_(by_rows_ ? width / kLine : (depth + kLine - 1) / kLine),
        left_(columns <= 0 ? 0 : lines_ * (by_rows_ ? depth : columns)),
        share_(left_ / parts + 1) {}

  HWY_INLINE void part() {
    const int64_t count = std::min(share_, left_);
    for (int64_t i = 0; i < count; ++i) {
      __builtin_prefetch(line_ + at_ * kLine, 0, 2);
      if (++at_ == lines_) {
        at_ = 0;
        line_ += stride_;
      }
    }
    left_ -= count;
  }

 private:
  const bool by_rows_;
  const float* line_;
  const int64_t stride_, lines_;
  int64_t left_, share_, at_ = 0;
};

// to[k · width + j] = element (k, j) of b, for `columns` ≤ width columns; zeros beyond.
void pack_strip_transposed(const MatrixView& b, int64_t depth, int64_t columns, int64_t width,
                           float* to) {
  int64_t j = 0;
#if HWY_TARGET == HWY_AVX3
  for (; j + 16 <= columns && depth >= 16; j += 16) {
    for (int64_t k = 0; k < depth; k += 16) {
      k = std::min(k, depth - 16);  // the last square may reach into the one before it
      V square[16];
      for (int64_t i = 0; i < 16; ++i)
        square[i] = hn::LoadU(D(), b.data + (j + i) * b.column_stride + k);
      transpose_16x16(square);
      for (int64_t i = 0; i < 16; ++i) hn::StoreU(square[i], D(), to + (k + i) * width + j);
    }
  }
#endif
  for (; j + 4 <= columns; j += 4) {
    const float* from = b.data + j * b.column_stride;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      // The next four columns, which lie too far apart for the machine to guess.
      hwy::Prefetch(from + (4 + k / 4 % 4) * b.column_stride + k / 16 * 16);
      transpose_4x4(from + k, b.column_stride, to + k * width + j, width);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < 4; ++i) to[k * width + j + i] = from[i * b.column_stride + k];
    }
  }
  for (; j < width; ++j) {
    for (int64_t k = 0; k < depth; ++k)
      to[k * width + j] = j < columns ? b.data[j * b.column_stride + k] : 0.0f;
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#endif  // STARLING_TENSOR_GEMM_PACK_INL_H_
