// The product inside our convolutions, compiled once for each target of Highway: some rows × 16
// columns of sums in registers, over operands that lie as they are. Include after hwy/highway.h,
// inside a file that is compiled through hwy/foreach_target.h and with -O3.
#if defined(STARLING_TENSOR_CONV_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_CONV_TILES_INL_H_
#undef STARLING_TENSOR_CONV_TILES_INL_H_
#else
#define STARLING_TENSOR_CONV_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most eight, whatever the target: channels come in eights.
using TileTag = hn::CappedTag<float, 8>;
using TileVector = hn::Vec<TileTag>;
constexpr int64_t kTileLanes = hn::MaxLanes(TileTag());
// For those that come in sixteens, where vectors are as long.
using WideTag = hn::CappedTag<float, 16>;
constexpr int64_t kWideLanes = hn::MaxLanes(WideTag());
constexpr int64_t kTileColumns = 16;
// 6 × 16 sums are 12 of the 16 registers of AVX2; AVX-512 has 32, and 12 sums keep it busy.
constexpr int64_t kTileRows = kWideLanes == 16 ? 12 : 6;

// Sums over k < depth of a(r, k) · b(k, j), where a(r, k) is at a + r · a_row + k · a_step and
// b(k, ·) at b + k · b_step. `columns` of them (8 or 16) go to c, or are added there.
template <int rows, bool add>
HWY_INLINE void multiply_tile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_row,
                              int64_t a_step, const float* HWY_RESTRICT b, int64_t b_step,
                              float* HWY_RESTRICT c, int64_t c_row, int64_t columns) {
  const WideTag d;
  constexpr int kVectors = static_cast<int>(kTileColumns / kWideLanes);
  hn::Vec<WideTag> sums[rows][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<WideTag> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kWideLanes);
    for (int r = 0; r < rows; ++r) {
      const auto left = hn::Set(d, a[r * a_row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
    a += a_step;
    b += b_step;
  }
  const auto put = [](auto tag, auto value, float* to) HWY_ATTR {
    hn::StoreU(add ? hn::Add(hn::LoadU(tag, to), value) : value, tag, to);
  };
  for (int r = 0; r < rows; ++r, c += c_row) {
    if (kWideLanes == kTileColumns && columns < kTileColumns) {
      put(hn::Half<WideTag>(), hn::LowerHalf(sums[r][0]), c);
      continue;
    }
    for (int v = 0; v < kVectors && v * kWideLanes < columns; ++v)
      put(d, sums[r][v], c + v * kWideLanes);
  }
}

// Calls body with `rows` (1 … kTileRows) as a constant.
template <int most = static_cast<int>(kTileRows), class Body>
HWY_INLINE void with_rows(int64_t rows, const Body& body) {
  if constexpr (most > 1) {
    if (rows < most) return with_rows<most - 1>(rows, body);
  }
  body(std::integral_constant<int, most>());
}

// `count` rows of a times one strip of b. Rows are cut into equal strips, give or take one.
template <bool add>
void multiply_strip(int64_t count, int64_t depth, const float* a, int64_t a_row, int64_t a_step,
                    const float* b, int64_t b_step, float* c, int64_t c_row, int64_t columns) {
  const int64_t strips = (count + kTileRows - 1) / kTileRows;
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t r = strip * count / strips;
    with_rows((strip + 1) * count / strips - r, [&](auto rows) {
      multiply_tile<decltype(rows)::value, add>(depth, a + r * a_row, a_row, a_step, b, b_step,
                                                c + r * c_row, c_row, columns);
    });
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#endif  // STARLING_TENSOR_CONV_TILES_INL_H_
