#include "tensor/conv_winograd.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/conv_winograd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/conv_tiles-inl.h"
#include "tensor/conv_winograd_points.h"

#ifndef STARLING_CONV_WINOGRAD_CONSTANTS
#define STARLING_CONV_WINOGRAD_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kTile = 4;  // outputs of a tile, each way
constexpr int64_t kRows = 6;  // tiles multiplied at a time

// How the work is cut: tiles over all rows and images, in blocks whose transformed inputs and sums
// should lie in L2.
struct Cut {
  static constexpr int64_t kCacheFloats = 80 * 1024;
  static constexpr int64_t kLeastTiles = 24;

  int64_t down, across, tiles, block;
  explicit Cut(const WinogradShape& s)
      : down((s.out_h + kTile - 1) / kTile),
        across((s.out_w + kTile - 1) / kTile),
        tiles(s.rows * down * across) {
    const int64_t fitting = kCacheFloats / (kPlaces * (s.channels + s.filters)) / kRows * kRows;
    block = std::min(round_up_to(tiles, kRows), std::max(kLeastTiles, fitting));
  }
};

// Floats from tile to tile; a line more where the same channel of all tiles would fall on few sets.
int64_t row_stride(int64_t channels) { return channels % 64 == 0 ? channels + kLine : channels; }
// Floats from place to place.
int64_t place_stride(const Cut& cut, int64_t channels) {
  return cut.block * row_stride(channels) + kLine;
}

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

template <class V>
HWY_INLINE V constant(float value) {
  return hn::Set(hn::DFromV<V>(), value);
}

// Calls body(tag, c) for c < channels, vector by vector: long ones if channels fill them.
template <class Body>
HWY_INLINE void for_channels(int64_t channels, const Body& body) {
  if (channels % kWideLanes == 0) {
    for (int64_t c = 0; c < channels; c += kWideLanes) body(WideTag(), c);
  } else {
    for (int64_t c = 0; c < channels; c += kTileLanes) body(TileTag(), c);
  }
}

// --- the transforms, one way; each is used down the columns, then along the rows -----------------

// Six inputs of a tile.
template <class V>
HWY_INLINE void transform_input(const V* x, V* t) {
  const V even_a = hn::NegMulAdd(constant<V>(kB2), x[2], x[4]);
  const V odd_a = hn::NegMulAdd(constant<V>(kB2), x[1], x[3]);
  const V even_b = hn::NegMulAdd(constant<V>(kA2), x[2], x[4]);
  const V odd_b = hn::NegMulAdd(constant<V>(kA2), x[1], x[3]);
  t[0] = hn::MulAdd(constant<V>(kA2B2), x[0], hn::NegMulAdd(constant<V>(kA2PlusB2), x[2], x[4]));
  t[1] = hn::MulAdd(constant<V>(kA), odd_a, even_a);
  t[2] = hn::NegMulAdd(constant<V>(kA), odd_a, even_a);
  t[3] = hn::MulAdd(constant<V>(kB), odd_b, even_b);
  t[4] = hn::NegMulAdd(constant<V>(kB), odd_b, even_b);
  t[5] = hn::MulAdd(constant<V>(kA2B2), x[1], hn::NegMulAdd(constant<V>(kA2PlusB2), x[3], x[5]));
}

// Six sums to four outputs.
template <class V>
HWY_INLINE void transform_output(const V* m, V* y) {
  const V sum_a = hn::Add(m[1], m[2]), difference_a = hn::Sub(m[1], m[2]);
  const V sum_b = hn::Add(m[3], m[4]), difference_b = hn::Sub(m[3], m[4]);
  y[0] = hn::Add(hn::Add(m[0], sum_a), sum_b);
  y[1] = hn::MulAdd(constant<V>(kA), difference_a, hn::Mul(constant<V>(kB), difference_b));
  y[2] = hn::MulAdd(constant<V>(kA2), sum_a, hn::Mul(constant<V>(kB2), sum_b));
  y[3] =
      hn::MulAdd(constant<V>(kA3), difference_a, hn::MulAdd(constant<V>(kB3), difference_b, m[5]));
}

// Four gradients of outputs to six: transform_output turned around.
template <class V>
HWY_INLINE void transform_gradient(const V* y, V* z) {
  const V even_a = hn::MulAdd(constant<V>(kA2), y[2], y[0]);
  const V odd_a = hn::MulAdd(constant<V>(kA2), y[3], y[1]);
  const V even_b = hn::MulAdd(constant<V>(kB2), y[2], y[0]);
  const V odd_b = hn::MulAdd(constant<V>(kB2), y[3], y[1]);
  z[0] = y[0];
  z[1] = hn::MulAdd(constant<V>(kA), odd_a, even_a);
  z[2] = hn::NegMulAdd(constant<V>(kA), odd_a, even_a);
  z[3] = hn::MulAdd(constant<V>(kB), odd_b, even_b);
  z[4] = hn::NegMulAdd(constant<V>(kB), odd_b, even_b);
  z[5] = y[3];
}

// Six sums to the gradients of three weights: the weights' transform turned around.
template <class V>
HWY_INLINE void transform_weight_gradient(const V* u, V* g) {
  const V sum_a = hn::Mul(constant<V>(kWeightA), hn::Add(u[1], u[2]));
  const V sum_b = hn::Mul(constant<V>(kWeightB), hn::Add(u[3], u[4]));
  const V odd_a = hn::Mul(constant<V>(kWeightA * kA), hn::Sub(u[1], u[2]));
  const V odd_b = hn::Mul(constant<V>(kWeightB * kB), hn::Sub(u[3], u[4]));
  g[0] = hn::Add(hn::MulAdd(constant<V>(kWeight0), u[0], sum_a), sum_b);
  g[1] = hn::Add(odd_a, odd_b);
  g[2] = hn::Add(hn::MulAdd(constant<V>(kA2), sum_a, hn::Mul(constant<V>(kB2), sum_b)), u[5]);
}

// --- tiles
// ----------------------------------------------------------------------------------------

// A square of an image, part of which may lie outside: there `row` points to zeros, and columns
// outside first … last−1 count as zeros.
template <int size>
struct Square {
  const float* row[size];
  int64_t first, last;

  Square(const float* image, int64_t height, int64_t width, int64_t channels, int64_t top,
         int64_t left, const float* zeros)
      : first(std::max<int64_t>(0, -left)), last(std::min<int64_t>(size, width - left)) {
    const float* from = image + (top * width + left) * channels;
    for (int64_t i = 0; i < size; ++i, from += width * channels)
      row[i] = top + i >= 0 && top + i < height ? from : zeros;
  }
};

// One vector of channels of a square of size × size, transformed both ways, to place after place.
template <class D, int size, class Transform>
HWY_INLINE void transform_square(D d, const Square<size>& square, int64_t channels, int64_t c,
                                 float* to, int64_t stride, const Transform& transform) {
  using V = hn::Vec<D>;
  V columns[kPatch][kPatch];  // [column][row]
  for (int j = 0; j < size; ++j) {
    V x[size];
    if (j >= square.first && j < square.last) {
      for (int i = 0; i < size; ++i) x[i] = hn::LoadU(d, square.row[i] + j * channels + c);
    } else {
      for (int i = 0; i < size; ++i) x[i] = hn::Zero(d);
    }
    transform(x, columns[j]);
  }
  for (int i = 0; i < kPatch; ++i) {
    V x[size], t[kPatch];
    for (int j = 0; j < size; ++j) x[j] = columns[j][i];
    transform(x, t);
    for (int j = 0; j < kPatch; ++j) hn::StoreU(t[j], d, to + (i * kPatch + j) * stride + c);
  }
}

struct TransformInput {
  template <class V>
  HWY_INLINE void operator()(const V* x, V* t) const {
    transform_input(x, t);
  }
};
struct TransformGradient {
  template <class V>
  HWY_INLINE void operator()(const V* x, V* t) const {
    transform_gradient(x, t);
  }
};

// Where tile `index` stands.
struct Place {
  int64_t row, y, x;  // y and x of its first output
  Place(const Cut& cut, int64_t index)
      : row(index / (cut.down * cut.across)),
        y(index / cut.across % cut.down * kTile),
        x(index % cut.across * kTile) {}
  void next(const Cut& cut) {
    if ((x += kTile) < cut.across * kTile) return;
    x = 0;
    if ((y += kTile) < cut.down * kTile) return;
    y = 0;
    ++row;
  }
};

// The inputs of tiles first … first + count − 1: to[place][tile][channel].
void transform_inputs(const WinogradShape& s, const Cut& cut, int64_t first, int64_t count,
                      const float* x, const float* zeros, float* to) {
  const int64_t stride = place_stride(cut, s.channels);
  Place place(cut, first);
  for (int64_t t = 0; t < count; ++t, place.next(cut)) {
    const Square<kPatch> square(x + place.row * s.in_h * s.in_w * s.channels, s.in_h, s.in_w,
                                s.channels, place.y - s.pad_top, place.x - s.pad_left, zeros);
    for_channels(s.channels, [&](auto tag, int64_t c) HWY_ATTR {
      transform_square(tag, square, s.channels, c, to + t * row_stride(s.channels), stride,
                       TransformInput());
    });
  }
}

void transform_gradients(const WinogradShape& s, const Cut& cut, int64_t first, int64_t count,
                         const float* dy, const float* zeros, float* to) {
  const int64_t stride = place_stride(cut, s.filters);
  Place place(cut, first);
  for (int64_t t = 0; t < count; ++t, place.next(cut)) {
    const Square<kTile> square(dy + place.row * s.out_h * s.out_w * s.filters, s.out_h, s.out_w,
                               s.filters, place.y, place.x, zeros);
    for_channels(s.filters, [&](auto tag, int64_t c) HWY_ATTR {
      transform_square(tag, square, s.filters, c, to + t * row_stride(s.filters), stride,
                       TransformGradient());
    });
  }
}

// One vector of filters of one tile: sums at m (stride between places) to the outputs.
template <bool bias, bool residual, bool relu, class D>
HWY_INLINE void write_outputs(D d, const float* m, int64_t stride, const float* bias_at,
                              const float* residual_at, float* y, int64_t row_floats,
                              int64_t filters, int64_t height, int64_t width) {
  using V = hn::Vec<D>;
  V columns[kPatch][kTile];
  for (int j = 0; j < kPatch; ++j) {
    V x[kPatch];
    for (int i = 0; i < kPatch; ++i) x[i] = hn::LoadU(d, m + (i * kPatch + j) * stride);
    transform_output(x, columns[j]);
  }
  const V offset = bias ? hn::LoadU(d, bias_at) : hn::Zero(d);
  for (int64_t i = 0; i < kTile; ++i) {
    V x[kPatch], out[kTile];
    for (int j = 0; j < kPatch; ++j) x[j] = columns[j][i];
    transform_output(x, out);
    if (i >= height) break;
    for (int64_t j = 0; j < kTile; ++j) {
      if (j >= width) break;
      V value = out[j];
      const int64_t at = i * row_floats + j * filters;
      if constexpr (bias) value = hn::Add(value, offset);
      if constexpr (residual) value = hn::Add(value, hn::LoadU(d, residual_at + at));
      // NaN stays, as x86 gives the second operand.
      if constexpr (relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);
      hn::StoreU(value, d, y + at);
    }
  }
}

template <bool bias, bool residual, bool relu>
void transform_outputs(const WinogradShape& s, const Cut& cut, int64_t first, int64_t count,
                       const float* m, const WinogradEpilogue& epilogue, float* y) {
  const int64_t stride = place_stride(cut, s.filters);
  Place place(cut, first);
  for (int64_t t = 0; t < count; ++t, place.next(cut)) {
    const int64_t at = ((place.row * s.out_h + place.y) * s.out_w + place.x) * s.filters;
    for_channels(s.filters, [&](auto tag, int64_t c) HWY_ATTR {
      write_outputs<bias, residual, relu>(
          tag, m + t * row_stride(s.filters) + c, stride, bias ? epilogue.bias + c : nullptr,
          residual ? epilogue.residual + at + c : nullptr, y + at + c, s.out_w * s.filters,
          s.filters, s.out_h - place.y, s.out_w - place.x);
    });
  }
}

using TransformOutputs = void (*)(const WinogradShape&, const Cut&, int64_t, int64_t, const float*,
                                  const WinogradEpilogue&, float*);
template <bool bias, bool residual>
TransformOutputs outputs_of(bool relu) {
  return relu ? transform_outputs<bias, residual, true> : transform_outputs<bias, residual, false>;
}
TransformOutputs outputs_of(const WinogradEpilogue& e) {
  if (e.bias != nullptr)
    return e.residual != nullptr ? outputs_of<true, true>(e.relu) : outputs_of<true, false>(e.relu);
  return e.residual != nullptr ? outputs_of<false, true>(e.relu) : outputs_of<false, false>(e.relu);
}

// --- the three passes
// -----------------------------------------------------------------------------

void convolution(const WinogradShape& s, const float* x, const float* transformed,
                 const WinogradEpilogue& epilogue, float* y, float* scratch) {
  const Cut cut(s);
  float* const zeros = scratch;
  float* const inputs = zeros + kPatch * s.channels;
  float* const sums = inputs + kPlaces * place_stride(cut, s.channels);
  std::fill_n(zeros, kPatch * s.channels, 0.0f);
  const TransformOutputs write = outputs_of(epilogue);
  for (int64_t first = 0; first < cut.tiles; first += cut.block) {
    const int64_t count = std::min(cut.block, cut.tiles - first);
    transform_inputs(s, cut, first, count, x, zeros, inputs);
    for (int64_t p = 0; p < kPlaces; ++p) {
      const float* weights = transformed + p * weight_place_floats(s.channels, s.filters);
      for (int64_t strip = 0; strip < s.filters; strip += kStrip, weights += s.channels * kStrip) {
        multiply_strip<false>(count, s.channels, inputs + p * place_stride(cut, s.channels),
                              row_stride(s.channels), 1, weights, kStrip,
                              sums + p * place_stride(cut, s.filters) + strip,
                              row_stride(s.filters), std::min(kStrip, s.filters - strip));
      }
    }
    write(s, cut, first, count, sums, epilogue, y);
  }
}

// The transformed weight gradient sums[place][channel][filter] to dw.
void write_weight_gradient(const WinogradShape& s, const float* sums, bool accumulate, float* dw) {
  using V = TileVector;
  const TileTag d;
  const int64_t stride = s.channels * s.filters + kLine;
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t k = 0; k < s.filters; k += kTileLanes) {
      V columns[kPatch][3];
      for (int j = 0; j < kPatch; ++j) {
        V u[kPatch];
        for (int i = 0; i < kPatch; ++i)
          u[i] = hn::LoadU(d, sums + (i * kPatch + j) * stride + c * s.filters + k);
        transform_weight_gradient(u, columns[j]);
      }
      for (int i = 0; i < 3; ++i) {
        V u[kPatch], g[3];
        for (int j = 0; j < kPatch; ++j) u[j] = columns[j][i];
        transform_weight_gradient(u, g);
        for (int j = 0; j < 3; ++j) {
          HWY_ALIGN float values[8];
          hn::Store(g[j], d, values);
          for (int64_t f = 0; f < kTileLanes; ++f) {
            float& to = dw[((k + f) * s.channels + c) * 9 + i * 3 + j];
            to = accumulate ? to + values[f] : values[f];
          }
        }
      }
    }
  }
}

void weight_gradient(const WinogradShape& s, const float* x, const float* dy, bool accumulate,
                     float* dw, float* scratch) {
  const Cut cut(s);
  const int64_t widest = std::max(s.channels, s.filters);
  const int64_t sum_stride = s.channels * s.filters + kLine;
  float* const zeros = scratch;
  float* const inputs = zeros + kPatch * widest;
  float* const gradients = inputs + kPlaces * place_stride(cut, s.channels);
  float* const sums = gradients + kPlaces * place_stride(cut, s.filters);
  std::fill_n(zeros, kPatch * widest, 0.0f);
  std::fill_n(sums, kPlaces * sum_stride, 0.0f);
  for (int64_t first = 0; first < cut.tiles; first += cut.block) {
    const int64_t count = std::min(cut.block, cut.tiles - first);
    transform_inputs(s, cut, first, count, x, zeros, inputs);
    transform_gradients(s, cut, first, count, dy, zeros, gradients);
    for (int64_t p = 0; p < kPlaces; ++p) {
      for (int64_t strip = 0; strip < s.filters; strip += kStrip) {
        multiply_strip<true>(s.channels, count, inputs + p * place_stride(cut, s.channels), 1,
                             row_stride(s.channels),
                             gradients + p * place_stride(cut, s.filters) + strip,
                             row_stride(s.filters), sums + p * sum_stride + strip, s.filters,
                             std::min(kStrip, s.filters - strip));
      }
    }
  }
  write_weight_gradient(s, sums, accumulate, dw);
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(convolution);
HWY_EXPORT(weight_gradient);

size_t winograd_scratch_floats(const WinogradShape& shape) {
  const Cut cut(shape);
  return static_cast<size_t>(
      kPatch * shape.channels +
      kPlaces * (place_stride(cut, shape.channels) + place_stride(cut, shape.filters)));
}

void winograd_convolution(const WinogradShape& shape, const float* x, const float* transformed,
                          const WinogradEpilogue& epilogue, float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(convolution)(shape, x, transformed, epilogue, y, scratch);
}

size_t winograd_gradient_scratch_floats(const WinogradShape& shape) {
  const Cut cut(shape);
  return static_cast<size_t>(kPatch * std::max(shape.channels, shape.filters) +
                             kPlaces * (place_stride(cut, shape.channels) +
                                        place_stride(cut, shape.filters) +
                                        shape.channels * shape.filters + kLine));
}

void winograd_weight_gradient(const WinogradShape& shape, const float* x, const float* dy,
                              bool accumulate, float* dw, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(shape, x, dy, accumulate, dw, scratch);
}

}  // namespace starling
#endif
