#include "tensor/conv_patches.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/conv_patches.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/conv_tiles-inl.h"

#ifndef STARLING_CONV_PATCHES_CONSTANTS
#define STARLING_CONV_PATCHES_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kStrip = 16;                // filters multiplied at a time
constexpr int64_t kDepth = 320;               // of a product: a strip of weights stays in L1
constexpr int64_t kLine = 16;                 // floats of a cache line
constexpr int64_t kCacheFloats = 48 * 1024;   // of a block of patches, in L2
constexpr int64_t kFewest = 48, kMost = 192;  // patches of a block

int64_t round_up_to(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Floats from patch to patch: an odd number of lines, so that they don't all fall on the same few
// sets of the caches.
int64_t stride_of(const Patches& p) {
  const int64_t lines = (p.width() + kLine - 1) / kLine;
  return (lines % 2 == 0 ? lines + 1 : lines) * kLine;
}

int64_t block_of(const Patches& p) {
  return std::clamp(kCacheFloats / stride_of(p) / 6 * 6, kFewest, kMost);
}

// Whether the patches are the image itself: a window of one pixel with stride 1.
bool is_plain(const Patches& p) {
  return p.taps.size() == 1 && p.step == 1 && p.taps[0].y == 0 && p.taps[0].x == 0 &&
         p.grid_h == p.in_h && p.grid_w == p.in_w;
}

// Walks over the pixels of the grid, row of the batch after row.
struct Pixel {
  int64_t row, y, x;
  Pixel(const Patches& p, int64_t index)
      : row(index / (p.grid_h * p.grid_w)), y(index / p.grid_w % p.grid_h), x(index % p.grid_w) {}
  void next(const Patches& p) {
    if (++x < p.grid_w) return;
    x = 0;
    if (++y < p.grid_h) return;
    y = 0;
    ++row;
  }
};

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void copy(const float* from, int64_t n, float* to) {
  const TileTag d;
  int64_t i = 0;
  for (; i + kTileLanes <= n; i += kTileLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = from[i];
}

HWY_INLINE void clear(int64_t n, float* to) {
  const TileTag d;
  int64_t i = 0;
  for (; i + kTileLanes <= n; i += kTileLanes) hn::StoreU(hn::Zero(d), d, to + i);
  for (; i < n; ++i) to[i] = 0;
}

// Patches first … first + count − 1, stride_of(p) floats apart.
void gather(const Patches& p, int64_t first, int64_t count, const float* x, float* to) {
  const int64_t stride = stride_of(p), image = p.in_h * p.in_w * p.channels;
  Pixel pixel(p, first);
  for (int64_t i = 0; i < count; ++i, to += stride, pixel.next(p)) {
    const float* const from = x + pixel.row * image;
    float* at = to;
    for (const PatchTap& tap : p.taps) {
      const int64_t iy = pixel.y * p.step + tap.y, ix = pixel.x * p.step + tap.x;
      if (iy >= 0 && iy < p.in_h && ix >= 0 && ix < p.in_w) {
        copy(from + (iy * p.in_w + ix) * p.channels, p.channels, at);
      } else {
        clear(p.channels, at);
      }
      at += p.channels;
    }
  }
}

// A block of patches in memory.
struct Block {
  const float* data;
  int64_t stride;
};
Block block_at(const Patches& p, int64_t first, int64_t count, const float* x, float* scratch) {
  if (is_plain(p)) return {x + first * p.channels, p.channels};
  gather(p, first, count, x, scratch);
  return {scratch, stride_of(p)};
}

void convolution(const Patches& p, const PatchTarget& target, int64_t filters, const float* x,
                 const float* packed, float* y, float* scratch) {
  const int64_t width = p.width(), block = block_of(p);
  const bool in_place = target.step == 1;
  float* const results = scratch + block * stride_of(p);
  for (int64_t first = 0; first < p.count(); first += block) {
    const int64_t count = std::min(block, p.count() - first);
    const Block patches = block_at(p, first, count, x, scratch);
    float* const out = in_place ? y + first * filters : results;
    if (width == 0) clear(count * filters, out);
    for (int64_t strip = 0; strip < filters; strip += kStrip) {
      const int64_t columns = std::min(kStrip, filters - strip);
      for (int64_t k = 0; k < width; k += kDepth) {
        const float* weights = packed + strip * width + k * kStrip;
        (k == 0 ? multiply_strip<false> : multiply_strip<true>)(count, std::min(kDepth, width - k),
                                                                patches.data + k, patches.stride, 1,
                                                                weights, kStrip, out + strip,
                                                                filters, columns);
      }
    }
    if (in_place) continue;
    Pixel pixel(p, first);
    for (int64_t i = 0; i < count; ++i, pixel.next(p)) {
      const int64_t at =
          (pixel.row * target.height + pixel.y * target.step + target.y) * target.width +
          pixel.x * target.step + target.x;
      copy(results + i * filters, filters, y + at * filters);
    }
  }
}

void weight_gradient(const Patches& p, const PatchWeights& layout, const float* x, const float* dy,
                     bool accumulate, float* dw, float* scratch) {
  const int64_t width = p.width(), block = block_of(p), filters = layout.filters;
  float* const sums = scratch + block * stride_of(p);
  clear(width * filters, sums);
  for (int64_t first = 0; first < p.count(); first += block) {
    const int64_t count = std::min(block, p.count() - first);
    const Block patches = block_at(p, first, count, x, scratch);
    for (int64_t strip = 0; strip < filters; strip += kStrip) {
      multiply_strip<true>(width, count, patches.data, 1, patches.stride,
                           dy + first * filters + strip, filters, sums + strip, filters,
                           std::min(kStrip, filters - strip));
    }
  }
  for (int64_t k = 0; k < filters; ++k) {
    for (size_t t = 0; t < p.taps.size(); ++t) {
      const float* from = sums + static_cast<int64_t>(t) * p.channels * filters + k;
      float* to = dw + k * layout.filter_stride + p.taps[t].index;
      for (int64_t c = 0; c < p.channels; ++c) {
        float& value = to[c * layout.channel_stride];
        value = accumulate ? value + from[c * filters] : from[c * filters];
      }
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

HWY_EXPORT(convolution);
HWY_EXPORT(weight_gradient);

size_t patch_weight_floats(const Patches& patches, int64_t filters) {
  return static_cast<size_t>(patches.width() * round_up_to(filters, kStrip));
}

void pack_patch_weights(const Patches& patches, const PatchWeights& layout, const float* weights,
                        float* packed) {
  for (int64_t strip = 0; strip < layout.filters; strip += kStrip) {
    for (const PatchTap& tap : patches.taps) {
      for (int64_t c = 0; c < patches.channels; ++c, packed += kStrip) {
        for (int64_t j = 0; j < kStrip; ++j) {
          packed[j] = strip + j < layout.filters ? weights[(strip + j) * layout.filter_stride +
                                                           c * layout.channel_stride + tap.index]
                                                 : 0.0f;
        }
      }
    }
  }
}

size_t patch_scratch_floats(const Patches& patches, int64_t filters) {
  return static_cast<size_t>(block_of(patches) * (stride_of(patches) + filters));
}

void patch_convolution(const Patches& patches, const PatchTarget& target, int64_t filters,
                       const float* x, const float* packed, float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(convolution)(patches, target, filters, x, packed, y, scratch);
}

size_t patch_gradient_scratch_floats(const Patches& patches, int64_t filters) {
  return static_cast<size_t>(block_of(patches) * stride_of(patches) + patches.width() * filters);
}

void patch_weight_gradient(const Patches& patches, const PatchWeights& layout, const float* x,
                           const float* dy, bool accumulate, float* dw, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(patches, layout, x, dy, accumulate, dw, scratch);
}

}  // namespace starling
#endif
