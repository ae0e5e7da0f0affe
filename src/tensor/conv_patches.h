// Convolutions of any small window and stride as products of matrices, on one thread: patches (what
// the window sees at each output pixel) times the weights. Patches are not laid out: the product
// finds their rows by pointers. f32, channels-last; the number of filters is a multiple of 8.
//
// The same code runs the gradient of the input: seen from the input, pixels of one phase (y mod
// stride, x mod stride) see the gradient of the output through a window of their own.
//
// Sums run in an order that depends on the shape alone. Nothing is allocated; scratch is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling {

constexpr int64_t kPatchTaps = 49;  // elements of a window, at most

// One element of the window: its place relative to the patch's origin, and its index in the
// weights' window.
struct PatchTap {
  int64_t y, x, index;
};

// Patches of images [rows][in_h][in_w][channels]; pixel (gy, gx) of a grid has its origin at
// (gy · step, gx · step), and what lies outside the image is zero.
struct Patches {
  int64_t rows, in_h, in_w, channels;
  int64_t grid_h, grid_w, step;
  std::vector<PatchTap> taps;
  int64_t width() const { return static_cast<int64_t>(taps.size()) * channels; }
  int64_t count() const { return rows * grid_h * grid_w; }
};

// Where the results of a grid go: pixel (gy, gx) is (gy · step + y, gx · step + x) of an image.
struct PatchTarget {
  int64_t height, width, step, y, x;
};

// Where an element of the weights lies: filter · filter_stride + channel · channel_stride + index.
struct PatchWeights {
  int64_t filters, filter_stride, channel_stride;
};

size_t patch_weight_floats(const Patches& patches, int64_t filters);
void pack_patch_weights(const Patches& patches, const PatchWeights& layout, const float* weights,
                        float* packed);

// Each patch times the packed weights, plus what is at the same place in `before`, unless null;
// `before` may be y.
size_t patch_scratch_floats(const Patches& patches);
void patch_convolution(const Patches& patches, const PatchTarget& target, int64_t filters,
                       const float* x, const float* packed, const float* before, float* y,
                       float* scratch);

// dw (+)= the gradient of the weights, where dy is [rows][grid_h][grid_w][filters].
size_t patch_gradient_scratch_floats(const Patches& patches, int64_t filters);
void patch_weight_gradient(const Patches& patches, const PatchWeights& layout, const float* x,
                           const float* dy, bool accumulate, float* dw, float* scratch);

}  // namespace starling
