// Operators that the engine has no kernels for, users' own among them: run as they are, through
// the Operator interface. Pointers are looked up per run into arrays made at compile time.
#include <algorithm>

#include "engine/lowering.h"

namespace starling {
namespace {

// What both passes need to know.
struct Custom {
  OperatorPtr op;
  uint32_t operator_id;
  std::vector<Shape> shapes;
  std::vector<Ref> inputs, parameters;
  Ref output, saved;
  size_t moments_offset = 0;
  int64_t channels = 0;  // with moments
};

Custom describe(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  Custom custom{.op = node.op,
                .operator_id = node.operator_id,
                .shapes = lowering.graph.input_shapes(node),
                .inputs = {},
                .parameters = {},
                .output = lowering.value(group.output),
                .saved = lowering.saved(group)};
  for (ValueId input : group.inputs) custom.inputs.push_back(lowering.value(input));
  for (size_t i = 0; i < node.parameters.size(); ++i)
    custom.parameters.push_back(lowering.weights(node, i));
  if (node.moments) {
    custom.moments_offset = lowering.resources.moments.find(node.name).offset;
    custom.channels = node.moments->channels;
  }
  return custom;
}

void resolve(const std::vector<Ref>& refs, const Frame& frame,
             std::vector<const float*>& pointers) {
  for (size_t i = 0; i < refs.size(); ++i) pointers[i] = refs[i].in(frame);
}

void forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  lowering.make_value(group.output);
  const int64_t saved_floats =
      node.op->saved_floats(lowering.graph.input_shapes(node), lowering.rows());
  lowering.saved(group) = lowering.scratch(static_cast<size_t>(std::max<int64_t>(saved_floats, 1)));
  Custom custom = describe(lowering, group);
  std::vector<const float*> inputs(custom.inputs.size()), parameters(custom.parameters.size());
  const Ref output = custom.output, saved = custom.saved;
  std::vector<Ref> touched = custom.inputs;
  touched.insert(touched.end(), {output, saved});
  lowering.emit(node.name + " forward", touched, [=](const Frame& frame) mutable {
    resolve(custom.inputs, frame, inputs);
    resolve(custom.parameters, frame, parameters);
    ForwardArgs args{.context = frame.context,
                     .operator_id = custom.operator_id,
                     .input_shapes = custom.shapes,
                     .inputs = inputs,
                     .parameters = parameters,
                     .output = output.in(frame),
                     .saved = saved.in(frame)};
    if (custom.channels > 0 && frame.context.training) {
      args.batch_mean = frame.moments + custom.moments_offset;
      args.batch_m2 = args.batch_mean + custom.channels;
    } else if (custom.channels > 0) {
      args.running_mean = frame.statistics + custom.moments_offset;
      args.running_variance = args.running_mean + custom.channels;
    }
    custom.op->forward(args);
  });
}

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Backward::Step& step = lowering.backward_step(group);
  Custom custom = describe(lowering, group);
  const Ref dy = lowering.gradient(group.output);
  std::vector<Ref> grad_inputs(group.inputs.size());
  std::vector<size_t> input_floats(group.inputs.size());
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    input_floats[i] = lowering.floats(group.inputs[i]);
    if (step.wants_input[i]) grad_inputs[i] = lowering.contribution(group.inputs[i]);
  }
  std::vector<Lowering::Target> grad_parameters;
  std::vector<size_t> parameter_floats;
  for (size_t i = 0; i < node.parameters.size(); ++i) {
    parameter_floats.push_back(lowering.slice(node, i).size);
    grad_parameters.push_back(step.wants_parameters ? lowering.parameter_gradient(node, i)
                                                    : Lowering::Target{{}, false});
  }
  // What backward does not read need not live that long, and is not shown to it.
  const BackwardNeeds needs = node.op->backward_needs();
  std::vector<Ref> touched = grad_inputs;
  touched.insert(touched.end(), {dy, custom.saved});
  if (needs.inputs) touched.insert(touched.end(), custom.inputs.begin(), custom.inputs.end());
  if (needs.output) touched.push_back(custom.output);
  std::vector<const float*> inputs(custom.inputs.size()), parameters(custom.parameters.size());
  std::vector<float*> to_inputs(grad_inputs.size()), to_parameters(grad_parameters.size());
  lowering.emit(node.name + " backward", touched, [=](const Frame& frame) mutable {
    if (needs.inputs) resolve(custom.inputs, frame, inputs);
    resolve(custom.parameters, frame, parameters);
    for (size_t i = 0; i < grad_inputs.size(); ++i) {
      to_inputs[i] = grad_inputs[i] ? grad_inputs[i].in(frame) : nullptr;
      if (to_inputs[i] != nullptr) std::fill_n(to_inputs[i], input_floats[i], 0.0f);
    }
    for (size_t i = 0; i < grad_parameters.size(); ++i) {
      const Lowering::Target& target = grad_parameters[i];
      to_parameters[i] = target.ref ? target.ref.in(frame) : nullptr;
      if (to_parameters[i] != nullptr && !target.adds && !frame.accumulate) {
        std::fill_n(to_parameters[i], parameter_floats[i], 0.0f);
      }
    }
    custom.op->backward({.context = frame.context,
                         .operator_id = custom.operator_id,
                         .input_shapes = custom.shapes,
                         .inputs = inputs,
                         .parameters = parameters,
                         .output = needs.output ? custom.output.in(frame) : nullptr,
                         .saved = custom.saved.in(frame),
                         .grad_output = dy.in(frame),
                         .grad_inputs = to_inputs,
                         .grad_parameters = to_parameters});
  });
  for (size_t i = 0; i < grad_inputs.size(); ++i) {
    if (grad_inputs[i]) lowering.contributed(group.inputs[i], grad_inputs[i]);
  }
}

}  // namespace

const Family kCustomFamily{
    .knows = [](const Operator&) { return true; }, .forward = forward, .backward = backward};

}  // namespace starling
