#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "graph/operator_shapes.h"
#include "starling/error.h"

namespace starling {
namespace {

// A whole image as one window: global pooling is pooling with it.
Window whole(const Shape& image) { return {.kernel_h = image[0], .kernel_w = image[1]}; }

// The offset of the largest of a channel inside the window: the first of equals. NaN wins, so
// that it does not vanish on its way to the loss.
int64_t winner(const Window& window, const Shape& image, const float* x, int64_t oy, int64_t ox,
               int64_t channel) {
  int64_t best = -1;
  for_each_pixel(window, image, oy, ox, [&](int64_t, int64_t, int64_t pixel) {
    const int64_t i = pixel * image[2] + channel;
    if (best < 0 || x[i] > x[best] || std::isnan(x[i])) best = i;
  });
  return best;
}

// One sample, forward: x {image} → y {out_h, out_w, channels}, in memory order.
void pool_forward(Pool2dOp::Mode mode, const Window& window, const Shape& image, const float* x,
                  float* y) {
  for (int64_t oy = 0; oy < window.out_h(image[0]); ++oy) {
    for (int64_t ox = 0; ox < window.out_w(image[1]); ++ox) {
      for (int64_t c = 0; c < image[2]; ++c) {
        if (mode == Pool2dOp::Mode::kMax) {
          *y++ = x[winner(window, image, x, oy, ox, c)];
          continue;
        }
        double sum = 0;
        int64_t count = 0;
        for_each_pixel(window, image, oy, ox, [&](int64_t, int64_t, int64_t pixel) {
          sum += x[pixel * image[2] + c];
          ++count;
        });
        *y++ = static_cast<float>(sum / static_cast<double>(count));
      }
    }
  }
}

// One sample, backward: adds the gradient of y to the double sums of the gradient of x.
void pool_backward(Pool2dOp::Mode mode, const Window& window, const Shape& image, const float* x,
                   const float* dy, std::vector<double>& dx) {
  for (int64_t oy = 0; oy < window.out_h(image[0]); ++oy) {
    for (int64_t ox = 0; ox < window.out_w(image[1]); ++ox) {
      int64_t count = 0;
      for_each_pixel(window, image, oy, ox, [&](int64_t, int64_t, int64_t) { ++count; });
      for (int64_t c = 0; c < image[2]; ++c) {
        const double gradient = *dy++;
        if (mode == Pool2dOp::Mode::kMax) {
          dx[static_cast<size_t>(winner(window, image, x, oy, ox, c))] += gradient;
          continue;
        }
        for_each_pixel(window, image, oy, ox, [&](int64_t, int64_t, int64_t pixel) {
          dx[static_cast<size_t>(pixel * image[2] + c)] += gradient / static_cast<double>(count);
        });
      }
    }
  }
}

void pool_rows_forward(Pool2dOp::Mode mode, const Window& window, const ForwardArgs& args) {
  const Shape& image = args.input_shapes[0];
  const int64_t out = window.out_h(image[0]) * window.out_w(image[1]) * image[2];
  for (int64_t row = 0; row < args.context.rows; ++row) {
    pool_forward(mode, window, image, args.inputs[0] + row * image.elements(),
                 args.output + row * out);
  }
}

void pool_rows_backward(Pool2dOp::Mode mode, const Window& window, const BackwardArgs& args) {
  if (!args.grad_inputs[0]) return;
  const Shape& image = args.input_shapes[0];
  const int64_t in = image.elements();
  const int64_t out = window.out_h(image[0]) * window.out_w(image[1]) * image[2];
  for (int64_t row = 0; row < args.context.rows; ++row) {
    const float* x = mode == Pool2dOp::Mode::kMax ? args.inputs[0] + row * in : nullptr;
    std::vector<double> dx(static_cast<size_t>(in));
    pool_backward(mode, window, image, x, args.grad_output + row * out, dx);
    add_sums(dx, args.grad_inputs[0] + row * in);
  }
}

// A window that lies in the padding alone has no maximum and no average.
void check_padding(const std::string& kind, const char* side, int64_t pad, int64_t kernel) {
  if (pad < kernel) return;
  throw input_error(fmt::format("{}: the {} padding {} is not below the kernel's extent {}", kind,
                                side, pad, kernel),
                    fmt::format("padding is in 0 … {} for this kernel", kernel - 1));
}

}  // namespace

Pool2dOp::Pool2dOp(Mode given_mode, Window given_window) : mode(given_mode), window(given_window) {
  const std::string name = mode == Mode::kMax ? "max_pool2d" : "average_pool2d";
  check_window(name, window);
  check_padding(name, "top", window.pad_top, window.kernel_h);
  check_padding(name, "bottom", window.pad_bottom, window.kernel_h);
  check_padding(name, "left", window.pad_left, window.kernel_w);
  check_padding(name, "right", window.pad_right, window.kernel_w);
}

Shape Pool2dOp::infer(std::span<const Shape> inputs) const {
  const Shape& image = image_input(kind(), inputs);
  return windowed_shape(kind(), window, image, image[2]);
}

double Pool2dOp::flops(std::span<const Shape> inputs) const {
  return static_cast<double>(infer(inputs).elements()) *
         static_cast<double>(window.kernel_h * window.kernel_w);
}

void Pool2dOp::forward(const ForwardArgs& args) const {
  const Shape& image = args.input_shapes[0];
  pool_rows_forward(mode, window.resolved(image[0], image[1]), args);
}

void Pool2dOp::backward(const BackwardArgs& args) const {
  const Shape& image = args.input_shapes[0];
  pool_rows_backward(mode, window.resolved(image[0], image[1]), args);
}

GlobalPool2dOp::GlobalPool2dOp(Pool2dOp::Mode given) : mode(given) {}

Shape GlobalPool2dOp::infer(std::span<const Shape> inputs) const {
  return Shape{image_input(kind(), inputs)[2]};
}

double GlobalPool2dOp::flops(std::span<const Shape> inputs) const {
  return static_cast<double>(image_input(kind(), inputs).elements());
}

void GlobalPool2dOp::forward(const ForwardArgs& args) const {
  pool_rows_forward(mode, whole(args.input_shapes[0]), args);
}

void GlobalPool2dOp::backward(const BackwardArgs& args) const {
  pool_rows_backward(mode, whole(args.input_shapes[0]), args);
}

}  // namespace starling
