// Dense layers: three products. y = x · Wᵀ + b; dW = dzᵀ · x, added up in the shard's gradient by
// the product itself; dx = dz · W.
#include <string_view>

#include "engine/lowering.h"
#include "engine/post_ops.h"
#include "engine/primitive_kernel.h"

namespace starling {
namespace {

using Dims = dnnl::memory::dims;
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

dnnl::memory::desc matrix(int64_t rows, int64_t columns, Type type, bool transposed = false) {
  return {{rows, columns}, type, transposed ? Dims{1, rows} : Dims{columns, 1}};
}

// Whether oneDNN has block-wise products (brgemm) here, which want weights in a layout of their own.
bool prefers_packed(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).substr(0, 3) == "brg";
}

// Where the weights of a product `rows × inner` · `inner × columns` are, and in which layout:
// the canonical ones (seen as inner × columns by `canonical`) or a packed copy.
struct WeightsChoice {
  dnnl::memory::desc desc;
  Ref ref;
};

WeightsChoice choose_weights(const Lowering& lowering, const Node& node, const dnnl::memory::desc& src,
                             const dnnl::memory::desc& canonical, const dnnl::memory::desc& dst) {
  const Slice& slice = lowering.slice(node, 0);
  if (lowering.options.precision == Precision::kBf16 && lowering.operand_type() == Type::f32) {
    const auto flat = plain_desc({static_cast<int64_t>(slice.size)});  // one copy for both directions
    return {canonical, lowering.resources.packed.require_rounded(slice.offset, flat, flat)};
  }
  const dnnl::memory::desc any(canonical.dims(), lowering.operand_type(), dnnl::memory::format_tag::any);
  const dnnl::matmul::primitive_desc description({src, any, dst}, onednn_attributes(), onednn_engine());
  if (lowering.operand_type() == Type::bf16 || prefers_packed(description)) {
    const dnnl::memory::desc packed = description.weights_desc();
    return {packed, lowering.resources.packed.require(slice.offset, canonical, packed)};
  }
  return {canonical, lowering.weights(node, 0)};
}

void forward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const auto src = matrix(s.rows, s.in, lowering.operand_type());
  const auto dst = matrix(s.rows, s.out, Type::f32);
  const auto bias = node.parameters.size() > 1 ? matrix(1, s.out, Type::f32) : dnnl::memory::desc();
  const auto weights = choose_weights(lowering, node, src, matrix(s.in, s.out, Type::f32, true), dst);

  const Ref x = lowering.value_operand(group.inputs[0], node.name + " input");
  const Ref y = lowering.make_value(group.output);
  const dnnl::matmul::primitive_desc description({src, weights.desc, bias, dst}, group_attributes(lowering, group, dst),
                                                 onednn_engine());
  BoundPrimitive product{dnnl::matmul(description)};
  product.bind(DNNL_ARG_SRC, src, x);
  product.bind(DNNL_ARG_WEIGHTS, weights.desc, weights.ref);
  if (bias) product.bind(DNNL_ARG_BIAS, bias, lowering.weights(node, 1));
  product.bind(DNNL_ARG_DST, dst, y);
  bind_group(lowering, group, dst, product);
  product.bind_scratchpad(description.scratchpad_desc());
  const Ref residual = group.residual >= 0 ? lowering.value(group.residual_input) : Ref{};
  lowering.emit(std::make_unique<PrimitiveKernel>(node.name + " forward", std::move(product)), {x, y, residual});
}

BoundPrimitive weight_product(const Sizes& s, Type type, const Ref& dz, const Ref& x, const Ref& dw, bool adds) {
  const auto left = matrix(s.out, s.rows, type, true), right = matrix(s.rows, s.in, type);
  const auto result = matrix(s.out, s.in, Type::f32);
  dnnl::primitive_attr attributes = onednn_attributes();
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description({left, right, result}, attributes, onednn_engine());
  BoundPrimitive product{dnnl::matmul(description)};
  product.bind(DNNL_ARG_SRC, left, dz);
  product.bind(DNNL_ARG_WEIGHTS, right, x);
  product.bind(DNNL_ARG_DST, result, dw);
  product.bind_scratchpad(description.scratchpad_desc());
  return product;
}

void backward(Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Backward::Step& step = lowering.backward_step(group);
  const Ref gradient = product_gradient(lowering, group, s.rows, s.out);
  const Ref dz = lowering.operand(gradient, static_cast<size_t>(s.rows * s.out), node.name + " gradient");

  if (step.wants_parameters) {
    const Ref x = lowering.value_operand(group.inputs[0], node.name + " input");
    const Lowering::Target dw = lowering.parameter_gradient(node, 0);
    const Type type = lowering.operand_type();
    lowering.emit(std::make_unique<AccumulatingKernel>(
                      node.name + " weight gradient", weight_product(s, type, dz, x, dw.ref, false),
                      weight_product(s, type, dz, x, dw.ref, true), dw.adds),
                  {dz, x});
  }
  if (step.wants_input[0]) {
    const auto src = matrix(s.rows, s.out, lowering.operand_type()), dst = matrix(s.rows, s.in, Type::f32);
    const auto weights = choose_weights(lowering, node, src, matrix(s.out, s.in, Type::f32), dst);
    const dnnl::matmul::primitive_desc description({src, weights.desc, dst}, onednn_attributes(), onednn_engine());
    const Ref dx = lowering.contribution(group.inputs[0]);
    BoundPrimitive product{dnnl::matmul(description)};
    product.bind(DNNL_ARG_SRC, src, dz);
    product.bind(DNNL_ARG_WEIGHTS, weights.desc, weights.ref);
    product.bind(DNNL_ARG_DST, dst, dx);
    product.bind_scratchpad(description.scratchpad_desc());
    lowering.emit(std::make_unique<PrimitiveKernel>(node.name + " input gradient", std::move(product)), {dz, dx});
    lowering.contributed(group.inputs[0], dx);
  }
}

}  // namespace

const Family kDenseFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const DenseOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

bool bf16_is_native() {
  static const bool native = [] {
    const auto square = [](Type type) { return matrix(64, 64, type); };
    dnnl::matmul::primitive_desc description;
    try {
      description = {{square(Type::bf16), square(Type::bf16), square(Type::f32)}, onednn_attributes(), onednn_engine()};
    } catch (const dnnl::error&) {
      return false;
    }
    return std::string_view(description.impl_info_str()).find("ref") == std::string_view::npos;
  }();
  return native;
}

}  // namespace starling
