// Convolutions 3×3 with stride 1 on one thread by Winograd's F(4×4, 3×3): 36 products give 16
// outputs, where the plain sum takes 144. f32, channels-last, numbers of channels that are
// multiples of 8.
//
// The image is cut into tiles of 4×4 outputs. Each tile's 6×6 inputs are transformed; so are the
// weights, once per update; at each of the 36 places the tiles are multiplied by the weights as
// matrices (channels × filters), and the sums are transformed back. The transforms evaluate
// polynomials at 0, ±5/8, ±3/2 and ∞: these points lose a fifth of what the textbook's (0, ±1, ±2,
// ∞) lose, about 1e-6 of the largest output at 64 channels.
//
// Sums run in an order that depends on the shape alone. Nothing is allocated; scratch is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace starling {

// Of a convolution with stride 1 and a window of 3×3.
struct WinogradShape {
  int64_t rows, in_h, in_w, channels, out_h, out_w, filters;
  int64_t pad_top, pad_left;
};

// Floats of transformed weights.
size_t winograd_weight_floats(int64_t channels, int64_t filters);
// Transforms weights[filters][channels][3][3].
void winograd_weights(int64_t channels, int64_t filters, const float* weights, float* transformed);
// The same for the convolution that takes the gradient of the output (`filters` channels) to that
// of the input (`channels` filters): turned around, and by 180°.
void winograd_weights_of_gradient(int64_t channels, int64_t filters, const float* weights,
                                  float* transformed);

// What happens to the outputs on their way to memory: y = relu(sum + bias[c] + residual[r][c]),
// where each part may be missing; `residual` may be y.
struct WinogradEpilogue {
  const float* bias = nullptr;
  const float* residual = nullptr;
  bool relu = false;
};

size_t winograd_scratch_floats(const WinogradShape& shape);
void winograd_convolution(const WinogradShape& shape, const float* x, const float* transformed,
                          const WinogradEpilogue& epilogue, float* y, float* scratch);

// dw[filters][channels][3][3] (+)= the gradient of the weights; adds when `accumulate`.
size_t winograd_gradient_scratch_floats(const WinogradShape& shape);
void winograd_weight_gradient(const WinogradShape& shape, const float* x, const float* dy,
                              bool accumulate, float* dw, float* scratch);

}  // namespace starling
