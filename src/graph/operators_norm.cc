#include <fmt/format.h>

#include <cmath>

#include "graph/operator_shapes.h"
#include "starling/error.h"

namespace starling {
namespace {

// Mean and sum of squared deviations of `n` values that lie `stride` floats apart.
struct Moments {
  double mean = 0;
  double m2 = 0;
};

Moments moments_of(const float* x, int64_t n, int64_t stride) {
  Moments result;
  for (int64_t i = 0; i < n; ++i) result.mean += x[i * stride];
  result.mean /= static_cast<double>(n);
  // A second pass: sums of squares lose all digits when the mean is large beside the deviation.
  for (int64_t i = 0; i < n; ++i) {
    const double deviation = x[i * stride] - result.mean;
    result.m2 += deviation * deviation;
  }
  return result;
}

}  // namespace

BatchNormOp::BatchNormOp(Options given) : options(given) {
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    throw input_error(fmt::format("batch_norm: momentum is {}", options.momentum),
                      "momentum, the weight of the new batch, is in 0 … 1");
  }
  if (!(options.epsilon > 0 && options.epsilon <= 1)) {
    throw input_error(fmt::format("batch_norm: epsilon is {}", options.epsilon),
                      "epsilon is above 0 and at most 1");
  }
}

Shape BatchNormOp::infer(std::span<const Shape> inputs) const {
  return vector_input(kind(), inputs);
}

std::vector<ParameterSpec> BatchNormOp::parameters(std::span<const Shape> inputs) const {
  const int64_t channels = infer(inputs).back();
  return {{.name = "scale", .shape = {channels}, .initializer = "ones", .decay = false},
          {.name = "shift", .shape = {channels}, .initializer = "zeros", .decay = false}};
}

std::optional<MomentsSpec> BatchNormOp::moments(std::span<const Shape> inputs) const {
  const Shape input = infer(inputs);
  return MomentsSpec{.channels = input.back(),
                     .count_per_sample = input.elements() / input.back(),
                     .momentum = options.momentum};
}

int64_t BatchNormOp::saved_floats(std::span<const Shape> inputs, int64_t) const {
  return 2 * infer(inputs).back();
}

// Two passes for the statistics, one to normalise.
double BatchNormOp::flops(std::span<const Shape> inputs) const {
  return static_cast<double>(infer(inputs).elements()) * 8;
}

void BatchNormOp::forward(const ForwardArgs& args) const {
  const Shape& shape = args.input_shapes[0];
  const int64_t channels = shape.back();
  const int64_t n = args.context.rows * (shape.elements() / channels);
  for (int64_t c = 0; c < channels; ++c) {
    const float* x = args.inputs[0] + c;
    double mean, variance;
    if (args.context.training) {
      const Moments batch = moments_of(x, n, channels);
      mean = args.batch_mean[c] = batch.mean;
      args.batch_m2[c] = batch.m2;
      variance = batch.m2 / static_cast<double>(n);
    } else {
      mean = args.running_mean[c];
      variance = args.running_variance[c];
    }
    const double inverse = 1 / std::sqrt(variance + options.epsilon);
    if (args.context.training) {
      args.saved[c] = static_cast<float>(mean);
      args.saved[channels + c] = static_cast<float>(inverse);
    }
    const double scale = args.parameters[0][c], shift = args.parameters[1][c];
    for (int64_t i = 0; i < n; ++i) {
      const double normal = (x[i * channels] - mean) * inverse;
      args.output[i * channels + c] = static_cast<float>(scale * normal + shift);
    }
  }
}

void BatchNormOp::backward(const BackwardArgs& args) const {
  const Shape& shape = args.input_shapes[0];
  const int64_t channels = shape.back();
  const int64_t n = args.context.rows * (shape.elements() / channels);
  float *dscale = args.grad_parameters[0], *dshift = args.grad_parameters[1];
  for (int64_t c = 0; c < channels; ++c) {
    const float *x = args.inputs[0] + c, *dy = args.grad_output + c;
    const double mean = args.saved[c], inverse = args.saved[channels + c];
    const auto normal = [&](int64_t i) { return (x[i * channels] - mean) * inverse; };
    double sum = 0, sum_normal = 0;  // of dy, and of dy · normal
    for (int64_t i = 0; i < n; ++i) {
      sum += dy[i * channels];
      sum_normal += dy[i * channels] * normal(i);
    }
    if (dscale) dscale[c] += static_cast<float>(sum_normal);
    if (dshift) dshift[c] += static_cast<float>(sum);
    if (float* dx = args.grad_inputs[0]) {
      // The mean and the variance depend on every input, which takes away two projections.
      const double count = static_cast<double>(n);
      const double factor = args.parameters[0][c] * inverse;
      for (int64_t i = 0; i < n; ++i) {
        const double projected = sum / count + normal(i) * (sum_normal / count);
        dx[i * channels + c] += static_cast<float>(factor * (dy[i * channels] - projected));
      }
    }
  }
}

}  // namespace starling
