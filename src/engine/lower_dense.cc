// Dense layers: three products. y = x · Wᵀ + b; dW = dzᵀ · x, added up in the shard's gradient by
// the product itself; dx = dz · W. Each is oneDNN's where oneDNN multiplies block by block
// (AVX-512, bf16), and our own (tensor/gemm.h) elsewhere.
#include "engine/lowering.h"
#include "engine/post_ops.h"
#include "engine/primitive_kernel.h"
#include "tensor/gemm.h"

namespace starling {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

struct Sizes {
  int64_t rows, in, out;
};

Sizes sizes_of(const Lowering& lowering, const Group& group) {
  const Shape& shape = lowering.graph.value(group.inputs[0]).shape;
  const int64_t in = shape.back();
  const auto& op = static_cast<const DenseOp&>(*lowering.node(group).op);
  return {lowering.rows() * shape.elements() / in, in, op.options.units};
}

// --- our own products ---------------------------------------------------------------------------

// The weights as operands: themselves, or a copy rounded to bf16.
Ref gemm_weights(const Lowering& lowering, const Node& node) {
  if (lowering.options.precision == Precision::kF32) return lowering.weights(node, 0);
  const Slice& slice = lowering.slice(node, 0);
  const Desc flat = plain_desc({static_cast<int64_t>(slice.size)});
  return lowering.resources.packed.require_rounded(slice.offset, flat, flat);
}

// A matrix operand: where it is, and its strides.
struct Operand {
  Ref ref;
  int64_t row_stride, column_stride;
  MatrixView in(const Frame& frame) const { return {ref.in(frame), row_stride, column_stride}; }
};

// target (+)= left · right. Adds always with `adds`, and else when the frame says so, if
// `gradient`.
void emit_gemm(Lowering& lowering, const std::string& label, const GemmShape& shape,
               const Operand& left, const Operand& right, const Ref& target, bool gradient,
               bool adds) {
  const Ref scratch = lowering.scratch(gemm_scratch_floats(shape));
  lowering.emit(label, {left.ref, right.ref, target, scratch}, [=](const Frame& frame) {
    gemm(shape, left.in(frame), right.in(frame), adds || (gradient && frame.accumulate),
         target.in(frame), scratch.in(frame));
  });
}

void gemm_forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Ref x = lowering.value_operand(group.inputs[0], node.name + " input");
  const Ref y = lowering.make_value(group.output);
  emit_gemm(lowering, node.name + " forward",
            {.m = s.rows, .n = s.out, .k = s.in, .row_shards = lowering.options.shards},
            {x, s.in, 1}, {gemm_weights(lowering, node), 1, s.in}, y, false, false);
  emit_epilogue(lowering, group, y, s.rows, s.out, node.parameters.size() > 1);
}

void gemm_weight_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                          const Ref& x) {
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  emit_gemm(lowering, node.name + " weight gradient",
            {.m = s.out, .n = s.in, .k = s.rows, .depth_shards = lowering.options.shards},
            {dz, 1, s.out}, {x, s.in, 1}, dw.ref, true, dw.adds);
}

void gemm_input_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                         const Ref& dx) {
  emit_gemm(lowering, node.name + " input gradient",
            {.m = s.rows, .n = s.in, .k = s.out, .row_shards = lowering.options.shards},
            {dz, s.out, 1}, {gemm_weights(lowering, node), s.in, 1}, dx, false, false);
}

// --- oneDNN's products --------------------------------------------------------------------------

Desc matrix(int64_t rows, int64_t columns, Type type, bool transposed = false) {
  return {{rows, columns}, type, transposed ? Dims{1, rows} : Dims{columns, 1}};
}

// The weights, seen as inner × columns by `canonical`, in the layout that the product wants.
struct PackedOperand {
  Desc desc;
  Ref ref;
};

PackedOperand packed_weights(const Lowering& lowering, const Node& node, const Desc& src,
                             const Desc& canonical, const Desc& dst) {
  const Desc any(canonical.dims(), lowering.operand_type(), dnnl::memory::format_tag::any);
  const dnnl::matmul::primitive_desc description({src, any, dst}, onednn_attributes(),
                                                 onednn_engine());
  const Desc packed = description.weights_desc();
  return {packed,
          lowering.resources.packed.require(lowering.slice(node, 0).offset, canonical, packed)};
}

void onednn_forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Desc src = matrix(s.rows, s.in, lowering.operand_type()),
             dst = matrix(s.rows, s.out, Type::f32);
  const Desc bias = node.parameters.size() > 1 ? matrix(1, s.out, Type::f32) : Desc();
  const PackedOperand weights =
      packed_weights(lowering, node, src, matrix(s.in, s.out, Type::f32, true), dst);
  const Ref x = lowering.value_operand(group.inputs[0], node.name + " input");
  const Ref y = lowering.make_value(group.output);
  const dnnl::matmul::primitive_desc description(
      {src, weights.desc, bias, dst}, group_attributes(lowering, group, dst), onednn_engine());
  BoundPrimitive product{dnnl::matmul(description)};
  product.bind(DNNL_ARG_SRC, src, x);
  product.bind(DNNL_ARG_WEIGHTS, weights.desc, weights.ref);
  if (bias) product.bind(DNNL_ARG_BIAS, bias, lowering.weights(node, 1));
  product.bind(DNNL_ARG_DST, dst, y);
  bind_group(lowering, group, dst, product);
  product.bind_scratchpad(description.scratchpad_desc());
  const Ref residual = group.residual >= 0 ? lowering.value(group.residual_input) : Ref{};
  lowering.emit(std::make_unique<PrimitiveKernel>(node.name + " forward", std::move(product)),
                {x, y, residual});
}

BoundPrimitive weight_product(const Sizes& s, Type type, const Ref& dz, const Ref& x, const Ref& dw,
                              bool adds) {
  const Desc left = matrix(s.out, s.rows, type, true), right = matrix(s.rows, s.in, type);
  const Desc result = matrix(s.out, s.in, Type::f32);
  dnnl::primitive_attr attributes = onednn_attributes();
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description({left, right, result}, attributes,
                                                 onednn_engine());
  BoundPrimitive product{dnnl::matmul(description)};
  product.bind(DNNL_ARG_SRC, left, dz);
  product.bind(DNNL_ARG_WEIGHTS, right, x);
  product.bind(DNNL_ARG_DST, result, dw);
  product.bind_scratchpad(description.scratchpad_desc());
  return product;
}

void onednn_weight_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                            const Ref& x) {
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  const Type type = lowering.operand_type();
  lowering.emit(std::make_unique<AccumulatingKernel>(
                    node.name + " weight gradient", weight_product(s, type, dz, x, dw.ref, false),
                    weight_product(s, type, dz, x, dw.ref, true), dw.adds),
                {dz, x});
}

void onednn_input_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                           const Ref& dx) {
  const Desc src = matrix(s.rows, s.out, lowering.operand_type()),
             dst = matrix(s.rows, s.in, Type::f32);
  const PackedOperand weights =
      packed_weights(lowering, node, src, matrix(s.out, s.in, Type::f32), dst);
  const dnnl::matmul::primitive_desc description({src, weights.desc, dst}, onednn_attributes(),
                                                 onednn_engine());
  BoundPrimitive product{dnnl::matmul(description)};
  product.bind(DNNL_ARG_SRC, src, dz);
  product.bind(DNNL_ARG_WEIGHTS, weights.desc, weights.ref);
  product.bind(DNNL_ARG_DST, dst, dx);
  product.bind_scratchpad(description.scratchpad_desc());
  lowering.emit(
      std::make_unique<PrimitiveKernel>(node.name + " input gradient", std::move(product)),
      {dz, dx});
}

// --- which of the two ---------------------------------------------------------------------------

// The name of what oneDNN would multiply with; empty when it can't.
std::string product_name(Type type) {
  try {
    const dnnl::matmul::primitive_desc description({matrix(64, 64, type),
                                                    {{64, 64}, type, dnnl::memory::format_tag::any},
                                                    matrix(64, 64, Type::f32)},
                                                   onednn_attributes(), onednn_engine());
    return description.impl_info_str();
  } catch (const dnnl::error&) {
    return "";
  }
}

void forward(Lowering& lowering, const Group& group) {
  (dense_uses_onednn(lowering.options.precision) ? onednn_forward : gemm_forward)(lowering, group);
}

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Backward::Step& step = lowering.backward_step(group);
  const bool onednn = dense_uses_onednn(lowering.options.precision);
  const Ref gradient = product_gradient(lowering, group, s.rows, s.out);
  const Ref dz =
      lowering.operand(gradient, static_cast<size_t>(s.rows * s.out), node.name + " gradient");
  if (step.wants_parameters) {
    const Ref x = lowering.value_operand(group.inputs[0], node.name + " input");
    (onednn ? onednn_weight_gradient : gemm_weight_gradient)(lowering, node, s, dz, x);
  }
  if (step.wants_input[0]) {
    const Ref dx = lowering.contribution(group.inputs[0]);
    (onednn ? onednn_input_gradient : gemm_input_gradient)(lowering, node, s, dz, dx);
    lowering.contributed(group.inputs[0], dx);
  }
}

}  // namespace

const Family kDenseFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const DenseOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

bool dense_uses_onednn(Precision precision) {
  static const bool blockwise = product_name(Type::f32).starts_with("brg");
  return precision == Precision::kBf16 ? bf16_is_native() : blockwise;
}

bool bf16_is_native() {
  static const bool native = [] {
    const std::string name = product_name(Type::bf16);
    return !name.empty() && name.find("ref") == std::string::npos;
  }();
  return native;
}

}  // namespace starling
