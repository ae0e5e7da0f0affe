#include "engine/own_conv.h"
#include "tensor/conv_pool.h"

namespace starling {
namespace {

ConvPoolShape shape_of(const Lowering& lowering, const Group& group) {
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const Shape& out = lowering.graph.value(group.output).shape;
  const auto& options = static_cast<const Conv2dOp&>(*lowering.node(group).op).options;
  const Window w = options.window.resolved(in[0], in[1]);
  return {.rows = lowering.rows(),
          .in_h = in[0],
          .in_w = in[1],
          .channels = in[2],
          .filters = options.filters,
          .out_h = out[0],
          .out_w = out[1],
          .pad_top = w.pad_top,
          .pad_left = w.pad_left};
}

uint8_t* bytes(const Ref& ref, const Frame& frame) {
  return reinterpret_cast<uint8_t*>(ref.in(frame));
}

}  // namespace

void own_conv_pool_forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const ConvPoolShape shape = shape_of(lowering, group);
  const bool relu = group.activation >= 0;
  const Ref x = lowering.value(group.inputs[0]), y = lowering.make_value(group.output);
  const Ref weights = lowering.weights(node, 0);
  const Ref bias = node.parameters.size() > 1 ? lowering.weights(node, 1) : Ref{};
  const Ref where = lowering.scratch(lowering.floats(group.output) / sizeof(float) + 1);
  const Ref scratch = lowering.scratch(conv_pool_scratch_floats(shape));
  const Lowering::Weights next = lowering.next_weights(group);
  lowering.saved(group) = where;
  lowering.emit(node.name + " forward, pool", {x, y, where, scratch}, [=](const Frame& frame) {
    conv_pool_forward(shape, relu, x.in(frame), weights.in(frame), bias ? bias.in(frame) : nullptr,
                      y.in(frame), bytes(where, frame), scratch.in(frame),
                      // In later micro-batches they are near.
                      {next.ref.in(frame), frame.accumulate ? 0 : next.floats});
  });
}

void own_conv_pool_backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  if (!lowering.backward_step(group).wants_parameters) return;
  const ConvPoolShape shape = shape_of(lowering, group);
  const bool relu = group.activation >= 0, has_bias = node.parameters.size() > 1;
  const Ref x = lowering.value(group.inputs[0]), y = lowering.value(group.output);
  const Ref dy = lowering.gradient(group.output), where = lowering.saved(group);
  const Ref scratch = lowering.scratch(conv_pool_scratch_floats(shape));
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  const Lowering::Target db =
      has_bias ? lowering.parameter_gradient(node, 1) : Lowering::Target{{}, false};
  lowering.emit(node.name + " weight and bias gradient of the pool", {x, y, dy, where, scratch},
                [=](const Frame& frame) {
                  conv_pool_backward(shape, relu, x.in(frame), y.in(frame), bytes(where, frame),
                                     dy.in(frame), dw.adds || frame.accumulate, dw.ref.in(frame),
                                     has_bias ? db.ref.in(frame) : nullptr, scratch.in(frame));
                });
}

}  // namespace starling
