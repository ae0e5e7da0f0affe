#include "graph/operator_shapes.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {

void check_option(const std::string& kind, const char* name, int64_t value, int64_t low,
                  int64_t high) {
  if (value >= low && value <= high) return;
  throw input_error(fmt::format("{}: {} is {}", kind, name, value),
                    fmt::format("{} is a whole number in {} … {}", name, low, high));
}

void check_window(const std::string& kind, const Window& window) {
  check_option(kind, "kernel height", window.kernel_h, 1, kMaxWindow);
  check_option(kind, "kernel width", window.kernel_w, 1, kMaxWindow);
  check_option(kind, "vertical stride", window.stride_h, 1, kMaxWindow);
  check_option(kind, "horizontal stride", window.stride_w, 1, kMaxWindow);
  const int64_t padding[] = {window.pad_top, window.pad_bottom, window.pad_left, window.pad_right};
  for (int64_t pad : padding) {
    check_option(kind, "padding", pad, 0, kMaxWindow);
    if (window.same && pad != 0) {
      throw input_error(fmt::format("{}: padding is \"same\" and also {}", kind, pad),
                        "give either padding \"same\" or numbers, not both");
    }
  }
}

const Shape& only_input(const std::string& kind, std::span<const Shape> inputs) {
  if (inputs.size() != 1) {
    throw input_error(fmt::format("{} takes 1 input, it was given {}", kind, inputs.size()),
                      "join several values with add first");
  }
  return inputs[0];
}

const Shape& vector_input(const std::string& kind, std::span<const Shape> inputs) {
  const Shape& input = only_input(kind, inputs);
  if (input.rank() == 0) {
    throw input_error(fmt::format("{} works on the last axis of its input, which is a {}", kind,
                                  input.to_string()),
                      "reshape the input to at least one axis, for instance 1");
  }
  return input;
}

const Shape& image_input(const std::string& kind, std::span<const Shape> inputs) {
  const Shape& image = only_input(kind, inputs);
  if (image.rank() != 3) {
    throw input_error(
        fmt::format("{} takes an image height×width×channels, its input is {}", kind,
                    image.to_string()),
        "place it before flatten, or reshape the input to three axes, for instance 28×28×1");
  }
  return image;
}

Shape windowed_shape(const std::string& kind, const Window& window, const Shape& image,
                     int64_t channels) {
  const Window resolved = window.resolved(image[0], image[1]);
  const int64_t height = resolved.out_h(image[0]), width = resolved.out_w(image[1]);
  if (height < 1 || width < 1) {
    throw input_error(
        fmt::format("{}: a kernel of {}×{} does not fit into the input {} padded to {}×{}", kind,
                    window.kernel_h, window.kernel_w, image.to_string(),
                    image[0] + resolved.pad_top + resolved.pad_bottom,
                    image[1] + resolved.pad_left + resolved.pad_right),
        "take a smaller kernel, padding \"same\", or fewer pooling layers before it");
  }
  return Shape{height, width, channels};
}

void add_sums(std::span<const double> sums, float* destination) {
  for (size_t i = 0; i < sums.size(); ++i) destination[i] += static_cast<float>(sums[i]);
}

}  // namespace starling
