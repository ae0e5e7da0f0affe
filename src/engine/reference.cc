#include "engine/reference.h"

#include <algorithm>
#include <cmath>

namespace starling {
namespace {

bool finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

ReferenceExecutor::ReferenceExecutor(const Graph& graph, LossPtr loss,
                                     const ParameterSpace& parameters, const MomentsLayout& moments)
    : graph_(graph),
      loss_(std::move(loss)),
      parameters_(parameters),
      moments_(moments),
      values_(graph.values().size()),
      gradients_(graph.values().size()),
      saved_(graph.nodes().size()) {}

void ReferenceExecutor::forward(const Inputs& in) {
  const int64_t rows = in.context.rows;
  for (size_t id = 0; id < values_.size(); ++id) {
    values_[id].assign(static_cast<size_t>(rows * graph_.values()[id].shape.elements()), 0.0f);
  }
  std::vector<float>& features = values_[static_cast<size_t>(graph_.inputs()[0])];
  std::copy_n(in.features, features.size(), features.begin());

  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    const std::vector<Shape> shapes = graph_.input_shapes(node);
    std::vector<const float*> inputs, parameters;
    for (ValueId id : node.inputs) inputs.push_back(value(id).data());
    for (const ParameterSpec& p : node.parameters)
      parameters.push_back(in.weights + parameters_.find(p.name)->offset);
    saved_[i].assign(static_cast<size_t>(node.op->saved_floats(shapes, rows)), 0.0f);
    ForwardArgs args{.context = in.context,
                     .operator_id = node.operator_id,
                     .input_shapes = shapes,
                     .inputs = inputs,
                     .parameters = parameters,
                     .output = values_[static_cast<size_t>(node.output)].data(),
                     .saved = saved_[i].data()};
    if (node.moments) {
      const MomentsLayout::Entry& entry = moments_.find(node.name);
      if (in.context.training) {
        args.batch_mean = in.shard_moments + entry.offset;
        args.batch_m2 = args.batch_mean + entry.spec.channels;
      } else {
        args.running_mean = in.statistics + entry.offset;
        args.running_variance = args.running_mean + entry.spec.channels;
      }
    }
    node.op->forward(args);
  }
  if (!loss_ || in.labels == nullptr) return;
  losses_.assign(static_cast<size_t>(rows), 0.0f);
  loss_->forward(rows, graph_.value(graph_.output()).shape, output().data(), in.labels,
                 losses_.data());
}

void ReferenceExecutor::backward(const Inputs& in, float* gradients) {
  const int64_t rows = in.context.rows;
  const Backward backward = differentiate(graph_, in.input_gradients);
  for (size_t id = 0; id < values_.size(); ++id) gradients_[id].assign(values_[id].size(), 0.0f);
  std::vector<float>& seed = gradients_[static_cast<size_t>(graph_.output())];
  if (loss_) {
    loss_->backward(rows, graph_.value(graph_.output()).shape, output().data(), in.labels,
                    in.loss_scale, seed.data());
  } else {
    std::copy_n(in.grad_output, seed.size(), seed.begin());
  }
  for (const Backward::Step& step : backward.steps) {
    const Node& node = graph_.node(step.node);
    const std::vector<Shape> shapes = graph_.input_shapes(node);
    std::vector<const float*> inputs, parameters;
    std::vector<float*> grad_inputs, grad_parameters;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(value(node.inputs[i]).data());
      grad_inputs.push_back(
          step.wants_input[i] ? gradients_[static_cast<size_t>(node.inputs[i])].data() : nullptr);
    }
    for (const ParameterSpec& p : node.parameters) {
      const size_t offset = parameters_.find(p.name)->offset;
      parameters.push_back(in.weights + offset);
      grad_parameters.push_back(step.wants_parameters ? gradients + offset : nullptr);
    }
    node.op->backward({.context = in.context,
                       .operator_id = node.operator_id,
                       .input_shapes = shapes,
                       .inputs = inputs,
                       .parameters = parameters,
                       .output = value(node.output).data(),
                       .saved = saved_[static_cast<size_t>(step.node)].data(),
                       .grad_output = gradient(node.output).data(),
                       .grad_inputs = grad_inputs,
                       .grad_parameters = grad_parameters});
  }
}

std::string ReferenceExecutor::first_non_finite() const {
  for (const Node& node : graph_.nodes()) {
    if (!finite(value(node.output))) return "layer " + node.name;
  }
  return finite(losses_) ? "" : "the loss";
}

}  // namespace starling
