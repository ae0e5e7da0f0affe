// Batch normalisation: our own kernels, with a residual and a relu in the same pass. In training
// the statistics are the shard's (its rows are one micro-batch), and the running ones change at
// commit.
#include <algorithm>
#include <cmath>

#include "engine/lowering.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

struct NormShape {
  int64_t n, channels;
};

NormShape norm_shape(const Lowering& lowering, const Group& group) {
  const int64_t channels = lowering.graph.value(group.output).shape.back();
  return {static_cast<int64_t>(lowering.floats(group.output)) / channels, channels};
}

// y = f(x · factor + offset + residual), block by block, so that memory is passed over once.
void normalise(const NormShape& shape, const float* factor, const float* offset, bool relu,
               const float* x, const float* residual, float* y) {
  const auto [n, channels] = shape;
  if (residual == nullptr) return channel_affine(n, channels, factor, offset, relu, x, y);
  constexpr int64_t kBlockFloats = 2048;
  const int64_t block = std::max<int64_t>(1, kBlockFloats / channels);
  for (int64_t first = 0; first < n; first += block) {
    const int64_t rows = std::min(block, n - first), at = first * channels;
    channel_affine(rows, channels, factor, offset, false, x + at, y + at);
    bias_activate(rows, channels, nullptr, residual + at, relu, Elementwise::kRelu, 0, y + at);
  }
}

// saved: mean, inverse deviation, then the factor and the offset of the pass (4 · channels floats).
void forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const NormShape shape = norm_shape(lowering, group);
  const int64_t n = shape.n, channels = shape.channels;
  const MomentsLayout::Entry& entry = lowering.resources.moments.find(node.name);
  const bool training = lowering.options.training, relu = group.activation >= 0;
  const float epsilon = static_cast<const BatchNormOp&>(*node.op).options.epsilon;
  const Ref x = lowering.value(group.inputs[0]), y = lowering.make_value(group.output);
  const Ref scale = lowering.weights(node, 0), shift = lowering.weights(node, 1);
  const Ref saved = lowering.saved(group) = lowering.scratch(static_cast<size_t>(4 * channels));
  const Ref residual = group.residual >= 0 ? lowering.value(group.residual_input) : Ref{};
  lowering.emit(
      node.name + " forward", {x, y, saved, residual}, [=, at = entry.offset](const Frame& frame) {
        float* mean = saved.in(frame);
        float *inverse = mean + channels, *factor = inverse + channels, *offset = factor + channels;
        if (training) {
          double* batch_mean = frame.moments + at;
          double* batch_m2 = batch_mean + channels;
          batch_moments(n, channels, x.in(frame), batch_mean, batch_m2);
          for (int64_t c = 0; c < channels; ++c) {
            mean[c] = static_cast<float>(batch_mean[c]);
            inverse[c] =
                static_cast<float>(1 / std::sqrt(batch_m2[c] / static_cast<double>(n) + epsilon));
          }
        } else {
          for (int64_t c = 0; c < channels; ++c) {
            mean[c] = frame.statistics[at + static_cast<size_t>(c)];
            inverse[c] = static_cast<float>(
                1 / std::sqrt(double{frame.statistics[at + static_cast<size_t>(channels + c)]} +
                              epsilon));
          }
        }
        for (int64_t c = 0; c < channels; ++c) {
          factor[c] = scale.in(frame)[c] * inverse[c];
          offset[c] = shift.in(frame)[c] - mean[c] * factor[c];
        }
        normalise(shape, factor, offset, relu, x.in(frame), residual ? residual.in(frame) : nullptr,
                  y.in(frame));
      });
}

// The gradient behind the residual: through the relu, and handed on to the residual.
Ref gradient_behind_residual(Lowering& lowering, const Group& group) {
  const Ref dy = lowering.gradient(group.output);
  Ref dz = dy;
  if (group.activation >= 0) {
    const Ref y = lowering.value(group.output);
    const int64_t n = static_cast<int64_t>(lowering.floats(group.output));
    dz = lowering.gradient_to_change(group.output);
    lowering.emit(
        lowering.node(group).name + " residual backward", {y, dy, dz}, [=](const Frame& frame) {
          elementwise_backward(Elementwise::kRelu, 0, n, y.in(frame), dy.in(frame), dz.in(frame));
        });
  }
  if (lowering.has_gradient(group.residual_input))
    lowering.contribute_alias(group.residual_input, dz);
  return dz;
}

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const auto [n, channels] = norm_shape(lowering, group);
  const bool relu = group.activation >= 0 && group.residual < 0;
  const bool wants_parameters = lowering.backward_step(group).wants_parameters;
  const bool wants_input = lowering.has_gradient(group.inputs[0]);
  const Ref x = lowering.value(group.inputs[0]), y = relu ? lowering.value(group.output) : Ref{};
  const Ref saved = lowering.saved(group), scale = lowering.weights(node, 0);
  const Ref dy = group.residual >= 0 ? gradient_behind_residual(lowering, group)
                                     : lowering.gradient(group.output);
  const Ref dx = wants_input ? lowering.contribution(group.inputs[0]) : Ref{};
  const Ref sums = lowering.scratch(static_cast<size_t>(2 * channels));
  // Gradients of frozen parameters go nowhere.
  const Ref nowhere =
      wants_parameters ? Ref{} : lowering.scratch(static_cast<size_t>(2 * channels));
  const Lowering::Target dscale =
      wants_parameters ? lowering.parameter_gradient(node, 0) : Lowering::Target{nowhere, false};
  Lowering::Target dshift{nowhere, false};
  if (wants_parameters) {
    dshift = lowering.parameter_gradient(node, 1);
  } else {
    dshift.ref.offset += static_cast<size_t>(channels);
  }
  lowering.emit(
      node.name + " backward", {x, y, dy, dx, saved, sums, nowhere}, [=](const Frame& frame) {
        const float* mean = saved.in(frame);
        batch_norm_backward(n, channels, x.in(frame), relu ? y.in(frame) : nullptr, relu, mean,
                            mean + channels, scale.in(frame), dy.in(frame),
                            wants_input ? dx.in(frame) : nullptr, dscale.adds || frame.accumulate,
                            dscale.ref.in(frame), dshift.ref.in(frame), sums.in(frame));
      });
  if (wants_input) lowering.contributed(group.inputs[0], dx);
}

}  // namespace

const Family kBatchNormFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const BatchNormOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

}  // namespace starling
