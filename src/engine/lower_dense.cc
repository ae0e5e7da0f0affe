// Dense layers: three products. y = x · Wᵀ + b; dW = dzᵀ · x, added up in the shard's gradient by
// the product itself, unless it is late (late_layout.h); dx = dz · W. Both gradients in one pass
// where units are few (tensor/head_gradients.h). In bf16 operands are rounded: by the product
// itself, or as copies (dense_product.h).
#include <limits>

#include "base/float_flags.h"
#include "engine/dense_product.h"
#include "engine/lowering.h"
#include "engine/onednn.h"
#include "tensor/head_gradients.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

struct Sizes {
  int64_t rows, in, out;
};

Sizes sizes_of(const Lowering& lowering, const Group& group) {
  const Shape& shape = lowering.graph.value(group.inputs[0]).shape;
  const int64_t in = shape.back();
  const auto& op = static_cast<const DenseOp&>(*lowering.node(group).op);
  return {lowering.rows() * shape.elements() / in, in, op.options.units};
}

// Whether products are made of copies that are rounded to bf16.
bool rounds_operands(const Lowering& lowering) {
  return wants_rounded_operands(lowering.options.precision);
}

// The weights as operands: themselves, or a copy rounded to bf16.
Ref weights_operand(const Lowering& lowering, const Node& node) {
  if (!rounds_operands(lowering)) return lowering.weights(node, 0);
  const Slice& slice = lowering.slice(node, 0);
  const auto flat = plain_desc({static_cast<int64_t>(slice.size)});
  return lowering.resources.packed.require_rounded(slice.offset, flat, flat);
}

Ref value_operand(Lowering& lowering, ValueId id, const Node& node) {
  if (!rounds_operands(lowering)) return lowering.value(id);
  return lowering.value_operand(id, node.name + " input", OperandForm::kRounded);
}

// A matrix operand: where it is, and its strides.
struct Operand {
  Ref ref;
  int64_t row_stride, column_stride;
  MatrixView in(const Frame& frame) const { return {ref.in(frame), row_stride, column_stride}; }
};

// target (+)= left · right. Adds always with `adds`, and else when the frame says so, if
// `gradient`.
void emit_product(Lowering& lowering, const std::string& label, const GemmShape& shape,
                  const Operand& left, const Operand& right, const Ref& target, bool gradient,
                  bool adds) {
  const GemmWay product = dense_product(lowering.options.precision);
  const Ref scratch = lowering.scratch(product.scratch_floats(shape));
  lowering.emit(label, {left.ref, right.ref, target, scratch}, [=](const Frame& frame) {
    product.multiply(shape, left.in(frame), right.in(frame), adds || (gradient && frame.accumulate),
                     target.in(frame), scratch.in(frame));
  });
}

void forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Ref x = value_operand(lowering, group.inputs[0], node);
  const Ref y = lowering.make_value(group.output);
  emit_product(lowering, node.name + " forward",
               {.m = s.rows, .n = s.out, .k = s.in, .row_shards = lowering.options.shards},
               {x, s.in, 1}, {weights_operand(lowering, node), 1, s.in}, y, false, false);
  emit_epilogue(lowering, group, y, s.rows, s.out, node.parameters.size() > 1);
}

const LateProduct* late_product(const Lowering& lowering, const Node& node) {
  if (lowering.options.late == nullptr) return nullptr;
  const Slice& slice = lowering.slice(node, 0);
  return lowering.options.late->find(
      static_cast<size_t>(&slice - lowering.resources.parameters.slices().data()));
}

// Leaves the operands of a late product to who computes it. A gradient that might overflow raises
// the flag now, as the product would have done: later the first weights have changed already.
void emit_late_operands(Lowering& lowering, const Node& node, const Sizes& s,
                        const LateProduct& product, const Ref& x, const Ref& dz) {
  const double all_rows =
      static_cast<double>(lowering.options.late->samples() * product.sample_rows);
  const double most = double{std::numeric_limits<float>::max()} / 2 / all_rows;
  lowering.emit(node.name + " operands left", {x, dz}, [=](const Frame& frame) {
    float* const area = frame.base[static_cast<size_t>(Space::kLate)];
    const int64_t row = frame.first_sample * product.sample_rows;
    const double most_x = copy_and_most(s.rows * s.in, x.in(frame), area + product.x + row * s.in);
    const double most_dz =
        copy_and_most(s.rows * s.out, dz.in(frame), area + product.dz + row * s.out);
    if (!(most_x * most_dz < most)) raise_overflow();
  });
}

void emit_weight_gradient(Lowering& lowering, const Group& group, const Sizes& s, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Ref x = value_operand(lowering, group.inputs[0], node);
  if (const LateProduct* const late = late_product(lowering, node); late != nullptr) {
    emit_late_operands(lowering, node, s, *late, x, dz);
    return;
  }
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  emit_product(lowering, node.name + " weight gradient",
               {.m = s.out, .n = s.in, .k = s.rows, .depth_shards = lowering.options.shards},
               {dz, 1, s.out}, {x, s.in, 1}, dw.ref, true, dw.adds);
}

void emit_input_gradient(Lowering& lowering, const Group& group, const Sizes& s, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Ref dx = lowering.contribution(group.inputs[0]);
  emit_product(lowering, node.name + " input gradient",
               {.m = s.rows, .n = s.in, .k = s.out, .row_shards = lowering.options.shards},
               {dz, s.out, 1}, {weights_operand(lowering, node), s.in, 1}, dx, false, false);
  lowering.contributed(group.inputs[0], dx);
}

// Whether one kernel makes both gradients.
bool together(const Lowering& lowering, const Group& group, const Sizes& s) {
  const Backward::Step& step = lowering.backward_step(group);
  return step.wants_parameters && step.wants_input[0] && lowering.options.shards == 1 &&
         late_product(lowering, lowering.node(group)) == nullptr &&
         dense_product(lowering.options.precision).multiply == kGemm.multiply &&
         head_gradients_pay({.rows = s.rows, .in = s.in, .units = s.out});
}

void emit_both_gradients(Lowering& lowering, const Group& group, const Sizes& s, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Ref x = value_operand(lowering, group.inputs[0], node);
  const Ref w = weights_operand(lowering, node);
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  const Ref dx = lowering.contribution(group.inputs[0]);
  lowering.emit(node.name + " gradients", {x, w, dz, dw.ref, dx}, [=](const Frame& frame) {
    head_gradients({.rows = s.rows, .in = s.in, .units = s.out},
                   {.x = x.in(frame),
                    .w = w.in(frame),
                    .dz = dz.in(frame),
                    .dw = dw.ref.in(frame),
                    .dx = dx.in(frame)},
                   dw.adds || frame.accumulate);
  });
  lowering.contributed(group.inputs[0], dx);
}

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Backward::Step& step = lowering.backward_step(group);
  Ref dz = product_gradient(lowering, group, s.rows, s.out);
  if (rounds_operands(lowering)) {
    dz = lowering.operand(dz, static_cast<size_t>(s.rows * s.out), node.name + " gradient",
                          OperandForm::kRounded);
  }
  if (together(lowering, group, s)) return emit_both_gradients(lowering, group, s, dz);
  if (step.wants_parameters) emit_weight_gradient(lowering, group, s, dz);
  if (step.wants_input[0]) emit_input_gradient(lowering, group, s, dz);
}

}  // namespace

const Family kDenseFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const DenseOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

}  // namespace starling
