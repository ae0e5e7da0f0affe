// The weights of conv_winograd.h, transformed. After every update all of them are, four times as
// much memory as there was: so they are turned in registers and leave them a line of the cache at a
// time.
#include <algorithm>
#include <array>

#include "tensor/conv_winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/conv_winograd_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/conv_tiles-inl.h"
#include "tensor/conv_winograd_points.h"
#include "tensor/transpose-inl.h"

#ifndef STARLING_CONV_WINOGRAD_WEIGHTS_CONSTANTS
#define STARLING_CONV_WINOGRAD_WEIGHTS_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kTaps = 9;
constexpr int64_t kChannels = 16;               // at a time
constexpr int64_t kRun = kChannels * kTaps;     // floats of a filter's weights in them
constexpr int64_t kSquare = 16;                 // floats that are turned at a time
constexpr std::array<float, kRun> kNoFilter{};  // stands for those that fill a strip up

// A filter's weights, one for each of a strip.
using Filters = std::array<const float*, kStrip>;

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// Three weights to six.
template <class V>
HWY_INLINE void transform_weights(const V* g, V* u) {
  const auto constant = [](float value) HWY_ATTR { return hn::Set(hn::DFromV<V>(), value); };
  const V even_a = hn::Mul(constant(kWeightA), hn::MulAdd(constant(kA2), g[2], g[0]));
  const V odd_a = hn::Mul(constant(kWeightA * kA), g[1]);
  const V even_b = hn::Mul(constant(kWeightB), hn::MulAdd(constant(kB2), g[2], g[0]));
  const V odd_b = hn::Mul(constant(kWeightB * kB), g[1]);
  u[0] = hn::Mul(constant(kWeight0), g[0]);
  u[1] = hn::Add(even_a, odd_a);
  u[2] = hn::Sub(even_a, odd_a);
  u[3] = hn::Add(even_b, odd_b);
  u[4] = hn::Sub(even_b, odd_b);
  u[5] = g[2];
}

// turned[i][k] = element i of filter k, for i < count. Up to kSquare − 1 elements more are written,
// none more are read.
void turn(const Filters& filters, int64_t count, float* turned) {
#if HWY_TARGET == HWY_AVX3
  const WideTag d;
  for (int64_t i = 0; i < count; i += kSquare) {
    const auto there = hn::FirstN(d, static_cast<size_t>(count - i));
    hn::Vec<WideTag> square[kSquare];
    for (size_t k = 0; k < kSquare; ++k) square[k] = hn::MaskedLoad(there, d, filters[k] + i);
    transpose_16x16(square);
    for (int64_t j = 0; j < kSquare; ++j) hn::Store(square[j], d, turned + (i + j) * kStrip);
  }
#else
  for (size_t k = 0; k < kStrip; ++k) {
    for (int64_t i = 0; i < count; ++i)
      turned[i * kStrip + static_cast<int64_t>(k)] = filters[k][i];
  }
#endif
}

// A strip of windows, each element of them a line: element i of the window is at
// window + i · step · kStrip. To place after place.
void transform_strip(const float* window, int64_t step, float* to, int64_t place) {
  const WideTag d;
  using V = hn::Vec<WideTag>;
  for (int64_t k = 0; k < kStrip; k += kWideLanes) {
    V columns[3][kPatch];
    for (int64_t j = 0; j < 3; ++j) {
      V g[3];
      for (int64_t i = 0; i < 3; ++i) g[i] = hn::Load(d, window + (i * 3 + j) * step * kStrip + k);
      transform_weights(g, columns[j]);
    }
    for (int i = 0; i < kPatch; ++i) {
      const V g[3] = {columns[0][i], columns[1][i], columns[2][i]};
      V u[kPatch];
      transform_weights(g, u);
      for (int j = 0; j < kPatch; ++j) hn::StoreU(u[j], d, to + (i * kPatch + j) * place + k);
    }
  }
}

// transformed[place][strip of filters][channel][filter] of weights[filter][channel][window].
void weights(int64_t channels, int64_t filters, const float* from, float* transformed) {
  HWY_ALIGN float turned[(kRun + kSquare) * kStrip];
  const int64_t place = weight_place_floats(channels, filters);
  for (int64_t strip = 0; strip < filters; strip += kStrip) {
    for (int64_t first = 0; first < channels; first += kChannels) {
      const int64_t count = std::min(kChannels, channels - first);
      Filters run;
      for (int64_t k = 0; k < kStrip; ++k) {
        run[static_cast<size_t>(k)] = strip + k < filters
                                          ? from + ((strip + k) * channels + first) * kTaps
                                          : kNoFilter.data();
      }
      turn(run, count * kTaps, turned);
      for (int64_t c = 0; c < count; ++c) {
        transform_strip(turned + c * kTaps * kStrip, 1,
                        transformed + strip * channels + (first + c) * kStrip, place);
      }
    }
  }
}

// The same of weights[channel][filter][window], and windows are turned by 180°.
void weights_turned(int64_t channels, int64_t filters, const float* from, float* transformed) {
  HWY_ALIGN float turned[(kTaps + kSquare) * kStrip];
  const int64_t place = weight_place_floats(channels, filters);
  for (int64_t strip = 0; strip < filters; strip += kStrip) {
    for (int64_t c = 0; c < channels; ++c) {
      Filters windows;
      for (int64_t k = 0; k < kStrip; ++k) {
        windows[static_cast<size_t>(k)] =
            strip + k < filters ? from + (c * filters + strip + k) * kTaps : kNoFilter.data();
      }
      turn(windows, kTaps, turned);
      transform_strip(turned + (kTaps - 1) * kStrip, -1,
                      transformed + strip * channels + c * kStrip, place);
    }
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(weights);
HWY_EXPORT(weights_turned);

size_t winograd_weight_floats(int64_t channels, int64_t filters) {
  return static_cast<size_t>(kPlaces * weight_place_floats(channels, filters));
}

void winograd_weights(int64_t channels, int64_t filters, const float* from, float* transformed) {
  HWY_DYNAMIC_DISPATCH(weights)(channels, filters, from, transformed);
}

void winograd_weights_of_gradient(int64_t channels, int64_t filters, const float* from,
                                  float* transformed) {
  HWY_DYNAMIC_DISPATCH(weights_turned)(filters, channels, from, transformed);
}

}  // namespace starling
#endif
