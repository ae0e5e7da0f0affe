#include <array>

#include "graph/operator_shapes.h"

namespace starling {

DenseOp::DenseOp(Options given) : options(std::move(given)) {
  check_option("dense", "units", options.units, 1, kMaxUnits);
}

Shape DenseOp::infer(std::span<const Shape> inputs) const {
  const Shape& input = vector_input(kind(), inputs);
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (int axis = 0; axis < input.rank(); ++axis) extents[static_cast<size_t>(axis)] = input[axis];
  extents[static_cast<size_t>(input.rank() - 1)] = options.units;
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(input.rank())));
}

std::vector<ParameterSpec> DenseOp::parameters(std::span<const Shape> inputs) const {
  const int64_t in = vector_input(kind(), inputs).back(), out = options.units;
  std::vector<ParameterSpec> specs{{.name = "weight",
                                    .shape = {out, in},
                                    .initializer = options.initializer,
                                    .fan_in = in,
                                    .fan_out = out}};
  if (options.bias) {
    specs.push_back({.name = "bias",
                     .shape = {out},
                     .initializer = "zeros",
                     .fan_in = in,
                     .fan_out = out,
                     .decay = false});
  }
  return specs;
}

double DenseOp::flops(std::span<const Shape> inputs) const {
  const double in = static_cast<double>(vector_input(kind(), inputs).back());
  return static_cast<double>(infer(inputs).elements()) * (2 * in + (options.bias ? 1 : 0));
}

void DenseOp::forward(const ForwardArgs& args) const {
  const Shape& shape = args.input_shapes[0];
  const int64_t in = shape.back(), out = options.units;
  const int64_t vectors = args.context.rows * (shape.elements() / in);
  const float* weight = args.parameters[0];
  for (int64_t v = 0; v < vectors; ++v) {
    const float* x = args.inputs[0] + v * in;
    for (int64_t o = 0; o < out; ++o) {
      double sum = options.bias ? args.parameters[1][o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += double{x[i]} * weight[o * in + i];
      args.output[v * out + o] = static_cast<float>(sum);
    }
  }
}

void DenseOp::backward(const BackwardArgs& args) const {
  const Shape& shape = args.input_shapes[0];
  const int64_t in = shape.back(), out = options.units;
  const int64_t vectors = args.context.rows * (shape.elements() / in);
  const float *x = args.inputs[0], *weight = args.parameters[0], *dy = args.grad_output;
  if (float* dx = args.grad_inputs[0]) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t o = 0; o < out; ++o) sum += double{dy[v * out + o]} * weight[o * in + i];
        dx[v * in + i] += static_cast<float>(sum);
      }
    }
  }
  if (float* dw = args.grad_parameters[0]) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t v = 0; v < vectors; ++v) sum += double{dy[v * out + o]} * x[v * in + i];
        dw[o * in + i] += static_cast<float>(sum);
      }
    }
  }
  if (float* db = options.bias ? args.grad_parameters[1] : nullptr) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t v = 0; v < vectors; ++v) sum += dy[v * out + o];
      db[o] += static_cast<float>(sum);
    }
  }
}

}  // namespace starling
