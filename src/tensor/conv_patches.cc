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

constexpr int64_t kStrip = 16;       // filters multiplied at a time
constexpr int64_t kRows = 6;         // patches multiplied at a time
constexpr int64_t kPointers = 1024;  // of a block of patches, one for each element of its windows
constexpr int64_t kMostPatches = 192;

int64_t round_up_to(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t block_of(const Patches& p) {
  const int64_t taps = std::max<int64_t>(1, static_cast<int64_t>(p.taps.size()));
  return std::min(kMostPatches, kPointers / taps / kRows * kRows);
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

// Where the window of a pixel finds its inputs: in the image, or at zeros outside of it.
class Windows {
 public:
  Windows(const Patches& p, const float* x, const float* zeros) : p_(p), x_(x), zeros_(zeros) {
    for (size_t t = 0; t < p.taps.size(); ++t) {
      const PatchTap& tap = p.taps[t];
      offset_[t] = (tap.y * p.in_w + tap.x) * p.channels;
      top_ = std::min(top_, tap.y);
      left_ = std::min(left_, tap.x);
      bottom_ = std::max(bottom_, tap.y);
      right_ = std::max(right_, tap.x);
    }
  }

  // to[t · stride] points to the channels of element t.
  void find(const Pixel& pixel, int64_t stride, const float** to) const {
    const int64_t y = pixel.y * p_.step, x = pixel.x * p_.step;
    const float* origin = x_ + ((pixel.row * p_.in_h + y) * p_.in_w + x) * p_.channels;
    const size_t taps = p_.taps.size();
    if (y + top_ >= 0 && y + bottom_ < p_.in_h && x + left_ >= 0 && x + right_ < p_.in_w) {
      for (size_t t = 0; t < taps; ++t, to += stride) *to = origin + offset_[t];
      return;
    }
    for (size_t t = 0; t < taps; ++t, to += stride) {
      const int64_t iy = y + p_.taps[t].y, ix = x + p_.taps[t].x;
      const bool inside = iy >= 0 && iy < p_.in_h && ix >= 0 && ix < p_.in_w;
      *to = inside ? origin + offset_[t] : zeros_;
    }
  }

 private:
  const Patches& p_;
  const float *x_, *zeros_;
  int64_t offset_[kPatchTaps];
  int64_t top_ = 0, left_ = 0, bottom_ = 0, right_ = 0;
};

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

constexpr int kVectors = static_cast<int>(kStrip / kTileLanes);

template <int rows>
HWY_INLINE void clear(TileVector (&sums)[rows][kVectors]) {
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(TileTag());
  }
}

// `rows` patches times a strip of weights: the inputs of element t are at inputs[t · kRows + r].
// `columns` sums of patch r go to y + places[r], added to what is at before + places[r] if that is
// not null.
template <int rows>
HWY_INLINE void multiply_patches(int64_t taps, int64_t channels, const float* const* inputs,
                                 const float* HWY_RESTRICT weights, const int64_t* places,
                                 const float* before, float* y, int64_t columns) {
  const TileTag d;
  TileVector sums[rows][kVectors];
  clear<rows>(sums);
  for (int64_t t = 0; t < taps; ++t, inputs += kRows) {
    const float* in[rows];
    for (int r = 0; r < rows; ++r) in[r] = inputs[r];
    for (int64_t c = 0; c < channels; ++c, weights += kStrip) {
      TileVector right[kVectors];
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, weights + v * kTileLanes);
      for (int r = 0; r < rows; ++r) {
        const TileVector left = hn::Set(d, in[r][c]);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = places[r] + v * kTileLanes;
      if (v * kTileLanes >= columns) break;
      hn::StoreU(before != nullptr ? hn::Add(hn::LoadU(d, before + at), sums[r][v]) : sums[r][v], d,
                 y + at);
    }
  }
}

// Adds to sums[r][·] the products of channel r of the inputs and a strip of the gradients, summed
// over `count` patches.
template <int rows>
HWY_INLINE void multiply_gradients(int64_t count, const float* const* inputs, int64_t channel,
                                   const float* HWY_RESTRICT dy, int64_t filters,
                                   float* HWY_RESTRICT to, int64_t columns) {
  const TileTag d;
  TileVector sums[rows][kVectors];
  clear<rows>(sums);
  // A strip of 8 filters reads them twice: behind those of the last patch there may be no memory.
  int64_t at[kVectors];
  for (int v = 0; v < kVectors; ++v) at[v] = std::min(v * kTileLanes, columns - kTileLanes);
  for (int64_t i = 0; i < count; ++i, dy += filters) {
    const float* in = inputs[i] + channel;
    TileVector right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, dy + at[v]);
    for (int r = 0; r < rows; ++r) {
      const TileVector left = hn::Set(d, in[r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      if (v * kTileLanes >= columns) break;
      float* sum = to + r * filters + v * kTileLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, sum), sums[r][v]), d, sum);
    }
  }
}

void convolution(const Patches& p, const PatchTarget& target, int64_t filters, const float* x,
                 const float* packed, const float* before, float* y, float* scratch) {
  const int64_t taps = static_cast<int64_t>(p.taps.size()), block = block_of(p);
  std::fill_n(scratch, p.channels, 0.0f);
  const Windows windows(p, x, scratch);
  const float* inputs[kPointers + kRows];  // [strip of kRows patches][element of the window][patch]
  int64_t places[kMostPatches];
  Pixel pixel(p, 0);
  for (int64_t first = 0; first < p.count(); first += block) {
    const int64_t count = std::min(block, p.count() - first);
    for (int64_t i = 0; i < count; ++i, pixel.next(p)) {
      windows.find(pixel, kRows, inputs + i / kRows * kRows * taps + i % kRows);
      places[i] = ((pixel.row * target.height + pixel.y * target.step + target.y) * target.width +
                   pixel.x * target.step + target.x) *
                  filters;
    }
    for (int64_t strip = 0; strip < filters; strip += kStrip) {
      const float* weights = packed + strip * p.width();
      const int64_t columns = std::min(kStrip, filters - strip);
      for (int64_t i = 0; i < count; i += kRows) {
        with_rows<kRows>(std::min(kRows, count - i), [&](auto rows) {
          multiply_patches<decltype(rows)::value>(
              taps, p.channels, inputs + i * taps, weights, places + i,
              before != nullptr ? before + strip : nullptr, y + strip, columns);
        });
      }
    }
  }
}

void weight_gradient(const Patches& p, const PatchWeights& layout, const float* x, const float* dy,
                     bool accumulate, float* dw, float* scratch) {
  const int64_t taps = static_cast<int64_t>(p.taps.size()), block = block_of(p);
  const int64_t filters = layout.filters, strips = (p.channels + kRows - 1) / kRows;
  float* const sums = scratch + p.channels;  // [element of the window][channel][filter]
  std::fill_n(scratch, p.channels + p.width() * filters, 0.0f);
  const Windows windows(p, x, scratch);
  const float* inputs[kPointers];  // [element of the window][patch]
  Pixel pixel(p, 0);
  for (int64_t first = 0; first < p.count(); first += block) {
    const int64_t count = std::min(block, p.count() - first);
    for (int64_t i = 0; i < count; ++i, pixel.next(p)) windows.find(pixel, block, inputs + i);
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t c = s * p.channels / strips;
        for (int64_t strip = 0; strip < filters; strip += kStrip) {
          with_rows<kRows>((s + 1) * p.channels / strips - c, [&](auto rows) {
            multiply_gradients<decltype(rows)::value>(
                count, inputs + t * block, c, dy + first * filters + strip, filters,
                sums + (t * p.channels + c) * filters + strip, std::min(kStrip, filters - strip));
          });
        }
      }
    }
  }
  for (int64_t k = 0; k < filters; ++k) {
    for (int64_t c = 0; c < p.channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) {
        float& to = dw[k * layout.filter_stride + c * layout.channel_stride +
                       p.taps[static_cast<size_t>(t)].index];
        const float sum = sums[(t * p.channels + c) * filters + k];
        to = accumulate ? to + sum : sum;
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

size_t patch_scratch_floats(const Patches& patches) {
  return static_cast<size_t>(patches.channels);
}

void patch_convolution(const Patches& patches, const PatchTarget& target, int64_t filters,
                       const float* x, const float* packed, const float* before, float* y,
                       float* scratch) {
  HWY_DYNAMIC_DISPATCH(convolution)(patches, target, filters, x, packed, before, y, scratch);
}

size_t patch_gradient_scratch_floats(const Patches& patches, int64_t filters) {
  return static_cast<size_t>(patches.channels + patches.width() * filters);
}

void patch_weight_gradient(const Patches& patches, const PatchWeights& layout, const float* x,
                           const float* dy, bool accumulate, float* dw, float* scratch) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(patches, layout, x, dy, accumulate, dw, scratch);
}

}  // namespace starling
#endif
