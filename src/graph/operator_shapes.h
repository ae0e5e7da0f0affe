// What the built-in operators share: checks of options and input shapes, whose errors name the
// operator and both shapes, and the walk of a window over an image. Pure functions.
#pragma once

#include <span>
#include <string>

#include "graph/operators.h"

namespace starling {

// Throws Error unless low ≤ value ≤ high; `name` is the option's name in the job file.
void check_option(const std::string& kind, const char* name, int64_t value, int64_t low,
                  int64_t high);

// The largest number of units or filters, and the largest kernel, stride or padding: far beyond
// use, and small enough that no size computed from them overflows.
inline constexpr int64_t kMaxUnits = int64_t{1} << 31;
inline constexpr int64_t kMaxWindow = int64_t{1} << 16;

// Throws Error unless the window's extents make sense.
void check_window(const std::string& kind, const Window& window);

// The input of an operator that takes exactly one. Throws Error otherwise.
const Shape& only_input(const std::string& kind, std::span<const Shape> inputs);

// The only input, which must have at least one axis. Throws Error otherwise.
const Shape& vector_input(const std::string& kind, std::span<const Shape> inputs);

// The only input, which must be an image {height, width, channels}. Throws Error otherwise.
const Shape& image_input(const std::string& kind, std::span<const Shape> inputs);

// {out_h, out_w, channels} of the window over the image. Throws Error when it fits nowhere.
Shape windowed_shape(const std::string& kind, const Window& window, const Shape& image,
                     int64_t channels);

// Adds the sums, each rounded once, to `destination`.
void add_sums(std::span<const double> sums, float* destination);

// Calls visit(ky, kx, pixel) for each place of the resolved window at output (out_y, out_x) that
// lies inside the image, row by row; `pixel` is y · width + x.
template <typename Visit>
void for_each_pixel(const Window& window, const Shape& image, int64_t out_y, int64_t out_x,
                    Visit visit) {
  const int64_t height = image[0], width = image[1];
  for (int64_t ky = 0; ky < window.kernel_h; ++ky) {
    const int64_t y = out_y * window.stride_h - window.pad_top + ky;
    if (y < 0 || y >= height) continue;
    for (int64_t kx = 0; kx < window.kernel_w; ++kx) {
      const int64_t x = out_x * window.stride_w - window.pad_left + kx;
      if (x >= 0 && x < width) visit(ky, kx, y * width + x);
    }
  }
}

}  // namespace starling
