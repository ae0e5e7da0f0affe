// Dense layers: three products. y = x · Wᵀ + b; dW = dzᵀ · x, added up in the shard's gradient by
// the product itself; dx = dz · W. In bf16 operands are rounded: by the product where there are
// tiles of bf16 (tensor/gemm_bf16.h), as copies elsewhere.
#include "base/isa.h"
#include "engine/lowering.h"
#include "engine/onednn.h"
#include "tensor/gemm_bf16.h"

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
  return lowering.options.precision == Precision::kBf16 && !has_bf16_tiles();
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
  const bool tiles = lowering.options.precision == Precision::kBf16 && has_bf16_tiles();
  const Ref scratch =
      lowering.scratch(tiles ? gemm_bf16_scratch_floats(shape) : gemm_scratch_floats(shape));
  const auto product = tiles ? gemm_bf16 : gemm;
  lowering.emit(label, {left.ref, right.ref, target, scratch}, [=](const Frame& frame) {
    product(shape, left.in(frame), right.in(frame), adds || (gradient && frame.accumulate),
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

void emit_weight_gradient(Lowering& lowering, const Group& group, const Sizes& s, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Ref x = value_operand(lowering, group.inputs[0], node);
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

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Backward::Step& step = lowering.backward_step(group);
  Ref dz = product_gradient(lowering, group, s.rows, s.out);
  if (rounds_operands(lowering)) {
    dz = lowering.operand(dz, static_cast<size_t>(s.rows * s.out), node.name + " gradient",
                          OperandForm::kRounded);
  }
  if (step.wants_parameters) emit_weight_gradient(lowering, group, s, dz);
  if (step.wants_input[0]) emit_input_gradient(lowering, group, s, dz);
}

}  // namespace

const Family kDenseFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const DenseOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

}  // namespace starling
