#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "graph/operator_shapes.h"
#include "starling/error.h"

namespace starling {

Window Window::resolved(int64_t h, int64_t w) const {
  if (!same) return *this;
  const auto total_padding = [](int64_t size, int64_t kernel, int64_t stride) {
    const int64_t outputs = (size + stride - 1) / stride;
    return std::max<int64_t>(0, (outputs - 1) * stride + kernel - size);
  };
  const int64_t vertical = total_padding(h, kernel_h, stride_h);
  const int64_t horizontal = total_padding(w, kernel_w, stride_w);
  Window window = *this;
  window.same = false;
  window.pad_top = vertical / 2;
  window.pad_bottom = vertical - window.pad_top;
  window.pad_left = horizontal / 2;
  window.pad_right = horizontal - window.pad_left;
  return window;
}

// A kernel larger than the padded input gives 0: division of a negative number would round up.
int64_t Window::out_h(int64_t h) const {
  const int64_t room = h + pad_top + pad_bottom - kernel_h;
  return room < 0 ? 0 : room / stride_h + 1;
}

int64_t Window::out_w(int64_t w) const {
  const int64_t room = w + pad_left + pad_right - kernel_w;
  return room < 0 ? 0 : room / stride_w + 1;
}

namespace {

// The extents of one convolution and the way its taps lie in memory.
struct Convolution {
  Convolution(const Conv2dOp::Options& options, const Shape& input, const Shape& output_shape)
      : image(input),
        output(output_shape),
        window(options.window.resolved(input[0], input[1])),
        group_channels(input[2] / options.groups),
        group_filters(options.filters / options.groups) {}

  // Calls visit(input, weight) with the offsets of each factor of output (oy, ox, filter).
  template <typename Visit>
  void for_each_tap(int64_t oy, int64_t ox, int64_t filter, Visit visit) const {
    const int64_t first_channel = filter / group_filters * group_channels;
    for_each_pixel(window, image, oy, ox, [&](int64_t ky, int64_t kx, int64_t pixel) {
      for (int64_t c = 0; c < group_channels; ++c) {
        visit(pixel * image[2] + first_channel + c,
              ((filter * group_channels + c) * window.kernel_h + ky) * window.kernel_w + kx);
      }
    });
  }

  // Calls visit(oy, ox, filter) for each element of the output, in memory order.
  template <typename Visit>
  void for_each_output(Visit visit) const {
    for (int64_t oy = 0; oy < output[0]; ++oy) {
      for (int64_t ox = 0; ox < output[1]; ++ox) {
        for (int64_t filter = 0; filter < output[2]; ++filter) visit(oy, ox, filter);
      }
    }
  }

  Shape image;
  Shape output;
  Window window;
  int64_t group_channels;
  int64_t group_filters;
};

}  // namespace

Conv2dOp::Conv2dOp(Options given) : options(std::move(given)) {
  check_option("conv2d", "filters", options.filters, 1, kMaxUnits);
  check_option("conv2d", "groups", options.groups, 1, options.filters);
  check_window("conv2d", options.window);
  if (options.filters % options.groups != 0) {
    throw input_error(fmt::format("conv2d: {} filters can't be split into {} groups",
                                  options.filters, options.groups),
                      "groups is in 1 … filters and divides filters");
  }
}

Shape Conv2dOp::infer(std::span<const Shape> inputs) const {
  const Shape& image = image_input(kind(), inputs);
  if (image[2] % options.groups != 0) {
    throw input_error(fmt::format("conv2d: the {} channels of the input {} can't be split into {} "
                                  "groups",
                                  image[2], image.to_string(), options.groups),
                      "groups must divide both the input's channels and the filters");
  }
  return windowed_shape(kind(), options.window, image, options.filters);
}

std::vector<ParameterSpec> Conv2dOp::parameters(std::span<const Shape> inputs) const {
  const int64_t channels = image_input(kind(), inputs)[2] / options.groups;
  const int64_t places = options.window.kernel_h * options.window.kernel_w;
  const int64_t fan_in = channels * places, fan_out = options.filters / options.groups * places;
  std::vector<ParameterSpec> specs{
      {.name = "weight",
       .shape = {options.filters, channels, options.window.kernel_h, options.window.kernel_w},
       .initializer = options.initializer,
       .fan_in = fan_in,
       .fan_out = fan_out}};
  if (options.bias) {
    specs.push_back({.name = "bias",
                     .shape = {options.filters},
                     .initializer = "zeros",
                     .fan_in = fan_in,
                     .fan_out = fan_out,
                     .decay = false});
  }
  return specs;
}

double Conv2dOp::flops(std::span<const Shape> inputs) const {
  const double taps = static_cast<double>(image_input(kind(), inputs)[2] / options.groups *
                                          options.window.kernel_h * options.window.kernel_w);
  return static_cast<double>(infer(inputs).elements()) * (2 * taps + (options.bias ? 1 : 0));
}

void Conv2dOp::forward(const ForwardArgs& args) const {
  const Convolution conv(options, args.input_shapes[0], infer(args.input_shapes));
  const float* weight = args.parameters[0];
  float* y = args.output;
  for (int64_t row = 0; row < args.context.rows; ++row) {
    const float* x = args.inputs[0] + row * conv.image.elements();
    conv.for_each_output([&](int64_t oy, int64_t ox, int64_t filter) {
      double sum = options.bias ? args.parameters[1][filter] : 0;
      conv.for_each_tap(oy, ox, filter,
                        [&](int64_t i, int64_t w) { sum += double{x[i]} * weight[w]; });
      *y++ = static_cast<float>(sum);
    });
  }
}

void Conv2dOp::backward(const BackwardArgs& args) const {
  const Convolution conv(options, args.input_shapes[0], infer(args.input_shapes));
  const auto doubles = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
  const int64_t image_size = conv.image.elements();
  float* const grad_bias = options.bias ? args.grad_parameters[1] : nullptr;
  const float *weight = args.parameters[0], *dy = args.grad_output;
  std::vector<double> dw = doubles(parameters(args.input_shapes)[0].shape.elements());
  std::vector<double> db = doubles(options.filters);
  for (int64_t row = 0; row < args.context.rows; ++row) {
    const float* x = args.inputs[0] + row * image_size;
    std::vector<double> dx = doubles(image_size);
    conv.for_each_output([&](int64_t oy, int64_t ox, int64_t filter) {
      const double gradient = *dy++;
      db[static_cast<size_t>(filter)] += gradient;
      conv.for_each_tap(oy, ox, filter, [&](int64_t i, int64_t w) {
        dx[static_cast<size_t>(i)] += gradient * weight[w];
        dw[static_cast<size_t>(w)] += gradient * x[i];
      });
    });
    if (args.grad_inputs[0]) add_sums(dx, args.grad_inputs[0] + row * image_size);
  }
  if (args.grad_parameters[0]) add_sums(dw, args.grad_parameters[0]);
  if (grad_bias) add_sums(db, grad_bias);
}

}  // namespace starling
