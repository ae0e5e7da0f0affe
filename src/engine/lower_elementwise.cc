// What needs one pass over memory or none: reshape, activations, softmax, dropout, add.
#include <algorithm>

#include "base/random.h"
#include "engine/lowering.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

template <typename Op>
bool knows(const Operator& op) {
  return dynamic_cast<const Op*>(&op) != nullptr;
}

int64_t count(const Lowering& lowering, ValueId id) {
  return static_cast<int64_t>(lowering.floats(id));
}

void reshape_forward(Lowering& lowering, const Group& group) {
  lowering.set_value(group.output, lowering.value(group.inputs[0]));
}

void reshape_backward(Lowering& lowering, const Group& group) {
  if (lowering.has_gradient(group.inputs[0])) {
    lowering.contribute_alias(group.inputs[0], lowering.gradient(group.output));
  }
}

const ActivationOp& activation_of(const Lowering& lowering, int node) {
  return static_cast<const ActivationOp&>(*lowering.graph.node(node).op);
}

void activation_forward(Lowering& lowering, const Group& group) {
  const ActivationOp& op = activation_of(lowering, group.main);
  const auto kind = static_cast<Elementwise>(op.activation);
  const int64_t n = count(lowering, group.output);
  const Ref x = lowering.value(group.inputs[0]), y = lowering.make_value(group.output);
  lowering.emit(lowering.node(group).name + " forward", {x, y},
                [=, slope = op.slope](const Frame& frame) {
                  elementwise_forward(kind, slope, n, x.in(frame), y.in(frame));
                });
}

void activation_backward(Lowering& lowering, const Group& group) {
  if (!lowering.has_gradient(group.inputs[0])) return;
  const ActivationOp& op = activation_of(lowering, group.main);
  const auto kind = static_cast<Elementwise>(op.activation);
  const int64_t n = count(lowering, group.output);
  const Ref known = lowering.value(op.backward_needs().inputs ? group.inputs[0] : group.output);
  const Ref dy = lowering.gradient(group.output), dx = lowering.gradient_to_change(group.output);
  lowering.emit(lowering.node(group).name + " backward", {known, dy, dx},
                [=, slope = op.slope](const Frame& frame) {
                  elementwise_backward(kind, slope, n, known.in(frame), dy.in(frame), dx.in(frame));
                });
  lowering.contribute_alias(group.inputs[0], dx);
}

void softmax_lower_forward(Lowering& lowering, const Group& group) {
  const int64_t columns = lowering.graph.value(group.output).shape.back();
  const int64_t rows = count(lowering, group.output) / columns;
  const Ref x = lowering.value(group.inputs[0]), y = lowering.make_value(group.output);
  lowering.emit(lowering.node(group).name + " forward", {x, y}, [=](const Frame& frame) {
    softmax_forward(rows, columns, x.in(frame), y.in(frame));
  });
}

void softmax_lower_backward(Lowering& lowering, const Group& group) {
  if (!lowering.has_gradient(group.inputs[0])) return;
  const int64_t columns = lowering.graph.value(group.output).shape.back();
  const int64_t rows = count(lowering, group.output) / columns;
  const Ref y = lowering.value(group.output);
  const Ref dy = lowering.gradient(group.output), dx = lowering.gradient_to_change(group.output);
  lowering.emit(lowering.node(group).name + " backward", {y, dy, dx}, [=](const Frame& frame) {
    softmax_backward(rows, columns, y.in(frame), dy.in(frame), dx.in(frame));
  });
  lowering.contribute_alias(group.inputs[0], dx);
}

// Dropout runs the same kernel on values and on gradients: the mask is drawn again, not kept.
void emit_dropout(Lowering& lowering, const Group& group, const char* pass, const Ref& from,
                  const Ref& to) {
  const Node& node = lowering.node(group);
  const float rate = static_cast<const DropoutOp&>(*node.op).rate;
  const uint32_t id = node.operator_id;
  const int64_t rows = lowering.rows(),
                elements = lowering.graph.value(group.output).shape.elements();
  lowering.emit(node.name + pass, {from, to}, [=](const Frame& frame) {
    const RowsContext& context = frame.context;
    const RandomStream stream = dropout_stream(context.seed, context.epoch, id, 0);
    dropout(rows, elements, rate, {stream.key(), stream.counter()[1]}, context.samples.data(),
            from.in(frame), to.in(frame));
  });
}

void dropout_forward(Lowering& lowering, const Group& group) {
  if (!lowering.options.training) {
    lowering.set_value(group.output, lowering.value(group.inputs[0]));
    return;
  }
  const Ref x = lowering.value(group.inputs[0]);
  emit_dropout(lowering, group, " forward", x, lowering.make_value(group.output));
}

void dropout_backward(Lowering& lowering, const Group& group) {
  if (!lowering.has_gradient(group.inputs[0])) return;
  const Ref dy = lowering.gradient(group.output), dx = lowering.gradient_to_change(group.output);
  emit_dropout(lowering, group, " backward", dy, dx);
  lowering.contribute_alias(group.inputs[0], dx);
}

void add_forward(Lowering& lowering, const Group& group) {
  const int64_t n = count(lowering, group.output);
  const Ref a = lowering.value(group.inputs[0]), b = lowering.value(group.inputs[1]);
  const Ref y = lowering.make_value(group.output);
  const std::string label = lowering.node(group).name + " forward";
  if (group.activation < 0) {
    lowering.emit(label, {a, b, y},
                  [=](const Frame& frame) { add(n, a.in(frame), b.in(frame), y.in(frame)); });
    return;
  }
  const ActivationOp& op = activation_of(lowering, group.activation);
  const auto kind = static_cast<Elementwise>(op.activation);
  // Block by block, so that the activation finds the sums in the cache.
  lowering.emit(label, {a, b, y}, [=, slope = op.slope](const Frame& frame) {
    constexpr int64_t kBlock = 2048;
    float* out = y.in(frame);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t floats = std::min(kBlock, n - i);
      add(floats, a.in(frame) + i, b.in(frame) + i, out + i);
      elementwise_forward(kind, slope, floats, out + i, out + i);
    }
  });
}

void add_backward(Lowering& lowering, const Group& group) {
  Ref dz = lowering.gradient(group.output);
  if (group.activation >= 0) {
    const ActivationOp& op = activation_of(lowering, group.activation);
    const auto kind = static_cast<Elementwise>(op.activation);
    const int64_t n = count(lowering, group.output);
    const Ref y = lowering.value(group.output), dy = dz;
    dz = lowering.gradient_to_change(group.output);
    lowering.emit(lowering.node(group).name + " backward", {y, dy, dz},
                  [=, slope = op.slope](const Frame& frame) {
                    elementwise_backward(kind, slope, n, y.in(frame), dy.in(frame), dz.in(frame));
                  });
  }
  for (ValueId input : group.inputs) {
    if (lowering.has_gradient(input)) lowering.contribute_alias(input, dz);
  }
}

}  // namespace

const Family kReshapeFamily{
    .knows = knows<ReshapeOp>, .forward = reshape_forward, .backward = reshape_backward};
const Family kActivationFamily{
    .knows = knows<ActivationOp>, .forward = activation_forward, .backward = activation_backward};
const Family kSoftmaxFamily{.knows = knows<SoftmaxOp>,
                            .forward = softmax_lower_forward,
                            .backward = softmax_lower_backward};
const Family kDropoutFamily{
    .knows = knows<DropoutOp>, .forward = dropout_forward, .backward = dropout_backward};
const Family kAddFamily{.knows = knows<AddOp>, .forward = add_forward, .backward = add_backward};

}  // namespace starling
