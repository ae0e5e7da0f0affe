#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/operator_shapes.h"
#include "starling/error.h"

namespace starling {
namespace {

// The number of floats in the only input of an element-wise operator.
int64_t count(const RowsContext& context, std::span<const Shape> shapes) {
  return context.rows * shapes[0].elements();
}

// Φ, the distribution function of the standard normal. erfc keeps its digits where Φ is small.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double normal_density(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

double activate(ActivationKind kind, double slope, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return x < 0 ? 0 : x;  // NaN stays NaN
    case ActivationKind::kLeakyRelu:
      return x < 0 ? slope * x : x;
    case ActivationKind::kGelu:
      return x * normal_cdf(x);
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return x;
}

// The derivative, told by `known`: the input for gelu, the output for the others.
double derivative(ActivationKind kind, double slope, double known) {
  switch (kind) {
    case ActivationKind::kRelu:
      return known > 0 ? 1 : 0;
    case ActivationKind::kLeakyRelu:
      return known > 0 ? 1 : slope;
    case ActivationKind::kGelu:
      return normal_cdf(known) + known * normal_density(known);
    case ActivationKind::kSigmoid:
      return known * (1 - known);
    case ActivationKind::kTanh:
      return 1 - known * known;
  }
  return 1;
}

}  // namespace

const char* activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kLeakyRelu:
      return "leaky_relu";
    case ActivationKind::kGelu:
      return "gelu";
    case ActivationKind::kSigmoid:
      return "sigmoid";
    case ActivationKind::kTanh:
      return "tanh";
  }
  return "activation";
}

ActivationOp::ActivationOp(ActivationKind given, float given_slope)
    : activation(given), slope(given_slope) {
  // With a slope below 0 the output would no longer tell the sign of the input.
  if (activation == ActivationKind::kLeakyRelu && !(slope >= 0 && slope <= 1)) {
    throw input_error(fmt::format("leaky_relu: slope is {}", slope), "slope is in 0 … 1");
  }
}

Shape ActivationOp::infer(std::span<const Shape> inputs) const {
  return only_input(kind(), inputs);
}

BackwardNeeds ActivationOp::backward_needs() const {
  const bool by_input = activation == ActivationKind::kGelu;
  return {.inputs = by_input, .output = !by_input};
}

// Rough: a transcendental function costs about ten operations.
double ActivationOp::flops(std::span<const Shape> inputs) const {
  const bool simple =
      activation == ActivationKind::kRelu || activation == ActivationKind::kLeakyRelu;
  return static_cast<double>(infer(inputs).elements()) * (simple ? 1 : 10);
}

void ActivationOp::forward(const ForwardArgs& args) const {
  const int64_t n = count(args.context, args.input_shapes);
  for (int64_t i = 0; i < n; ++i) {
    args.output[i] = static_cast<float>(activate(activation, slope, args.inputs[0][i]));
  }
}

void ActivationOp::backward(const BackwardArgs& args) const {
  float* dx = args.grad_inputs[0];
  if (!dx) return;
  const int64_t n = count(args.context, args.input_shapes);
  const float* known = backward_needs().inputs ? args.inputs[0] : args.output;
  for (int64_t i = 0; i < n; ++i) {
    dx[i] += static_cast<float>(args.grad_output[i] * derivative(activation, slope, known[i]));
  }
}

Shape SoftmaxOp::infer(std::span<const Shape> inputs) const { return vector_input(kind(), inputs); }

// Rough: maximum, difference, exponential, sum and quotient.
double SoftmaxOp::flops(std::span<const Shape> inputs) const {
  return static_cast<double>(infer(inputs).elements()) * 14;
}

void SoftmaxOp::forward(const ForwardArgs& args) const {
  const int64_t k = args.input_shapes[0].back();
  const int64_t vectors = count(args.context, args.input_shapes) / k;
  for (int64_t v = 0; v < vectors; ++v) {
    const float* x = args.inputs[0] + v * k;
    float* y = args.output + v * k;
    const double largest = *std::max_element(x, x + k);
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += std::exp(x[i] - largest);
    for (int64_t i = 0; i < k; ++i) y[i] = static_cast<float>(std::exp(x[i] - largest) / sum);
  }
}

void SoftmaxOp::backward(const BackwardArgs& args) const {
  if (!args.grad_inputs[0]) return;
  const int64_t k = args.input_shapes[0].back();
  const int64_t vectors = count(args.context, args.input_shapes) / k;
  for (int64_t v = 0; v < vectors; ++v) {
    const float *y = args.output + v * k, *dy = args.grad_output + v * k;
    float* dx = args.grad_inputs[0] + v * k;
    double inner = 0;
    for (int64_t i = 0; i < k; ++i) inner += double{y[i]} * dy[i];
    for (int64_t i = 0; i < k; ++i) dx[i] += static_cast<float>(y[i] * (dy[i] - inner));
  }
}

RandomStream dropout_stream(uint64_t seed, uint32_t epoch, uint32_t operator_id, uint64_t sample) {
  const uint64_t operator_bits = (uint64_t{operator_id} + 1) << 32;
  return RandomStream(mix64(seed ^ operator_bits), Draw::kDropout, epoch, sample);
}

namespace {

// Calls visit(i, factor) for each float of the micro-batch: 0 where dropped, else the scale.
template <typename Visit>
void for_each_dropout(float rate, const RowsContext& context, uint32_t operator_id,
                      int64_t elements, Visit visit) {
  const float scale = 1.0f / (1.0f - rate);
  for (int64_t row = 0; row < context.rows; ++row) {
    if (!context.training) {
      for (int64_t e = 0; e < elements; ++e) visit(row * elements + e, 1.0f);
      continue;
    }
    const RandomStream stream = dropout_stream(context.seed, context.epoch, operator_id,
                                               context.samples[static_cast<size_t>(row)]);
    for (int64_t e = 0; e < elements; ++e) {
      const bool kept = stream.uniform(static_cast<uint64_t>(e)) >= rate;
      visit(row * elements + e, kept ? scale : 0.0f);
    }
  }
}

}  // namespace

DropoutOp::DropoutOp(float given) : rate(given) {
  if (!(rate >= 0 && rate < 1)) {
    throw input_error(fmt::format("dropout: rate is {}", rate), "rate is at least 0 and below 1");
  }
}

Shape DropoutOp::infer(std::span<const Shape> inputs) const { return only_input(kind(), inputs); }

void DropoutOp::forward(const ForwardArgs& args) const {
  const int64_t elements = args.input_shapes[0].elements();
  for_each_dropout(rate, args.context, args.operator_id, elements,
                   [&](int64_t i, float factor) { args.output[i] = args.inputs[0][i] * factor; });
}

void DropoutOp::backward(const BackwardArgs& args) const {
  float* dx = args.grad_inputs[0];
  if (!dx) return;
  const int64_t elements = args.input_shapes[0].elements();
  for_each_dropout(rate, args.context, args.operator_id, elements,
                   [&](int64_t i, float factor) { dx[i] += args.grad_output[i] * factor; });
}

Shape AddOp::infer(std::span<const Shape> inputs) const {
  if (inputs.size() != 2) {
    throw input_error(fmt::format("add takes 2 inputs, it was given {}", inputs.size()),
                      "add several values two by two");
  }
  if (inputs[0] != inputs[1]) {
    throw input_error(
        fmt::format("add: the inputs have different shapes, {} and {}", inputs[0].to_string(),
                    inputs[1].to_string()),
        "bring both to one shape, for instance with a 1×1 convolution on the shortcut");
  }
  return inputs[0];
}

void AddOp::forward(const ForwardArgs& args) const {
  const int64_t n = count(args.context, args.input_shapes);
  for (int64_t i = 0; i < n; ++i) args.output[i] = args.inputs[0][i] + args.inputs[1][i];
}

void AddOp::backward(const BackwardArgs& args) const {
  const int64_t n = count(args.context, args.input_shapes);
  for (float* dx : args.grad_inputs) {
    if (!dx) continue;
    for (int64_t i = 0; i < n; ++i) dx[i] += args.grad_output[i];
  }
}

ReshapeOp::ReshapeOp(std::optional<Shape> given) : target(std::move(given)) {}

Shape ReshapeOp::infer(std::span<const Shape> inputs) const {
  const Shape& input = only_input(kind(), inputs);
  if (!target) return Shape{input.elements()};
  if (input.elements() != target->elements()) {
    throw input_error(
        fmt::format("reshape: the input {} has {} elements, the target {} has {}",
                    input.to_string(), input.elements(), target->to_string(), target->elements()),
        "choose a target with as many elements as the input");
  }
  return *target;
}

void ReshapeOp::forward(const ForwardArgs& args) const {
  std::copy_n(args.inputs[0], count(args.context, args.input_shapes), args.output);
}

void ReshapeOp::backward(const BackwardArgs& args) const {
  float* dx = args.grad_inputs[0];
  if (!dx) return;
  const int64_t n = count(args.context, args.input_shapes);
  for (int64_t i = 0; i < n; ++i) dx[i] += args.grad_output[i];
}

}  // namespace starling
