// Convolutions, channels-last, on weights packed once per update: our own (own_conv.h) or oneDNN's.
// oneDNN's weight gradient comes out in its own layout; it is put back into the canonical one and
// added there.
#include <string_view>

#include "engine/lowering.h"
#include "engine/own_conv.h"
#include "engine/post_ops.h"
#include "engine/primitive_kernel.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

// In bf16 oneDNN gets bf16 where it has kernels for that, and rounded f32 elsewhere.
bool multiplies_bf16(const Lowering& lowering) {
  return lowering.options.precision == Precision::kBf16 && onednn_has_bf16();
}
OperandForm operand_form() {
  return onednn_has_bf16() ? OperandForm::kBf16 : OperandForm::kRounded;
}

Ref input_operand(Lowering& lowering, const Group& group) {
  const ValueId id = group.inputs[0];
  if (lowering.options.precision == Precision::kF32) return lowering.value(id);
  return lowering.value_operand(id, lowering.node(group).name + " input", operand_form());
}

// A convolution as oneDNN sees it: logical dims are N C H W, memory is channels-last.
struct Geometry {
  Desc src, src_operand, dst, dst_operand, weights_any, weights_plain, bias;
  Dims strides, pad_before, pad_after;
  int64_t out_pixels, filters;
  size_t weight_floats;
};

Geometry geometry_of(const Lowering& lowering, const Group& group) {
  const Node& node = lowering.node(group);
  const auto& options = static_cast<const Conv2dOp&>(*node.op).options;
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const Window w = options.window.resolved(in[0], in[1]);
  const int64_t out_h = w.out_h(in[0]), out_w = w.out_w(in[1]), n = lowering.rows();
  const int64_t g = options.groups, in_group = in[2] / g, out_group = options.filters / g;
  const Dims weight_dims = g == 1 ? Dims{options.filters, in[2], w.kernel_h, w.kernel_w}
                                  : Dims{g, out_group, in_group, w.kernel_h, w.kernel_w};
  const Dims src{n, in[2], in[0], in[1]}, dst{n, options.filters, out_h, out_w};
  const Type type = multiplies_bf16(lowering) ? Type::bf16 : Type::f32;
  return {
      .src = {src, Type::f32, Tag::nhwc},
      .src_operand = {src, type, Tag::nhwc},
      .dst = {dst, Type::f32, Tag::nhwc},
      .dst_operand = {dst, type, Tag::nhwc},
      .weights_any = {weight_dims, type, Tag::any},
      .weights_plain = plain_desc(weight_dims),
      .bias = options.bias ? Desc({options.filters}, Type::f32, Tag::x) : Desc(),
      .strides = {w.stride_h, w.stride_w},
      .pad_before = {w.pad_top, w.pad_left},
      .pad_after = {w.pad_bottom, w.pad_right},
      .out_pixels = out_h * out_w,
      .filters = options.filters,
      .weight_floats = static_cast<size_t>(options.filters * in_group * w.kernel_h * w.kernel_w)};
}

dnnl::convolution_forward::primitive_desc forward_description(
    const Geometry& g, const dnnl::primitive_attr& attributes) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, g.src_operand,
           g.weights_any, g.bias, g.dst, g.strides, g.pad_before, g.pad_after},
          attributes,
          onednn_engine()};
}

// The weights in the layout `wanted`: the canonical ones where that is the same.
Ref packed_weights(const Lowering& lowering, const Node& node, const Geometry& g,
                   const Desc& wanted) {
  const size_t offset = lowering.slice(node, 0).offset;
  const bool rounded = lowering.options.precision == Precision::kBf16 && !multiplies_bf16(lowering);
  if (rounded) return lowering.resources.packed.require_rounded(offset, g.weights_plain, wanted);
  if (wanted == g.weights_plain) return lowering.weights(node, 0);
  return lowering.resources.packed.require(offset, g.weights_plain, wanted);
}

// Whether oneDNN adds the residual: its convolution by matrix product, taken for some numbers of
// groups and for all shapes before AVX2, adds the wrong elements of a channels-last one (2.6.3).
bool rides_along(const Group& group, const dnnl::convolution_forward::primitive_desc& chosen) {
  return group.residual < 0 ||
         std::string_view(chosen.impl_info_str()).find("gemm") == std::string_view::npos;
}

void forward(Lowering& lowering, const Group& group) {
  if (group.pool >= 0) return own_conv_pool_forward(lowering, group);
  if (owns_convolution(lowering, group)) return own_conv_forward(lowering, group);
  const Node& node = lowering.node(group);
  const Geometry g = geometry_of(lowering, group);
  auto description = forward_description(g, group_attributes(lowering, group, g.dst));
  const bool rides = rides_along(group, description);
  Group inside = group;
  if (!rides) {
    inside.residual = inside.activation = -1;
    description = forward_description(g, onednn_attributes());
  }
  const Ref x = input_operand(lowering, group);
  const Ref y = lowering.make_value(group.output);
  BoundPrimitive convolution{dnnl::convolution_forward(description)};
  convolution.bind(DNNL_ARG_SRC, g.src_operand, x);
  convolution.bind(DNNL_ARG_WEIGHTS, description.weights_desc(),
                   packed_weights(lowering, node, g, description.weights_desc()));
  if (g.bias) convolution.bind(DNNL_ARG_BIAS, g.bias, lowering.weights(node, 1));
  convolution.bind(DNNL_ARG_DST, g.dst, y);
  bind_group(lowering, inside, g.dst, convolution);
  convolution.bind_scratchpad(description.scratchpad_desc());
  const Ref residual = inside.residual >= 0 ? lowering.value(inside.residual_input) : Ref{};
  lowering.emit(std::make_unique<PrimitiveKernel>(node.name + " forward", std::move(convolution)),
                {x, y, residual});
  if (!rides) {
    emit_epilogue(lowering, group, y, lowering.rows() * g.out_pixels, g.filters, false);
  }
}

void lower_weight_gradient(Lowering& lowering, const Group& group, const Geometry& g, const Ref& dz,
                           const dnnl::convolution_forward::primitive_desc& hint) {
  const Node& node = lowering.node(group);
  Desc any = g.weights_any;
  any.data.data_type = dnnl_f32;
  const dnnl::convolution_backward_weights::primitive_desc description(
      {dnnl::algorithm::convolution_direct, g.src_operand, any, g.dst_operand, g.strides,
       g.pad_before, g.pad_after},
      onednn_attributes(), onednn_engine(), hint);
  const Desc packed = description.diff_weights_desc();
  const Ref x = input_operand(lowering, group);
  const Ref fresh = lowering.scratch(packed.get_size() / sizeof(float));
  BoundPrimitive convolution{dnnl::convolution_backward_weights(description)};
  convolution.bind(DNNL_ARG_SRC, g.src_operand, x);
  convolution.bind(DNNL_ARG_DIFF_DST, g.dst_operand, dz);
  convolution.bind(DNNL_ARG_DIFF_WEIGHTS, packed, fresh);
  convolution.bind_scratchpad(description.scratchpad_desc());
  lowering.emit(
      std::make_unique<PrimitiveKernel>(node.name + " weight gradient", std::move(convolution)),
      {x, dz, fresh});

  Ref plain = fresh;
  if (packed != g.weights_plain) {
    plain = lowering.scratch(g.weight_floats);
    const dnnl::reorder::primitive_desc unpack(onednn_engine(), packed, onednn_engine(),
                                               g.weights_plain, onednn_attributes());
    BoundPrimitive reorder{dnnl::reorder(unpack)};
    reorder.bind(DNNL_ARG_FROM, packed, fresh);
    reorder.bind(DNNL_ARG_TO, g.weights_plain, plain);
    reorder.bind_scratchpad(unpack.scratchpad_desc());
    lowering.emit(std::make_unique<PrimitiveKernel>(node.name + " weight gradient layout",
                                                    std::move(reorder)),
                  {fresh, plain});
  }
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  const int64_t n = static_cast<int64_t>(g.weight_floats);
  lowering.emit(node.name + " weight gradient sum", {plain}, [=](const Frame& frame) {
    float* target = dw.ref.in(frame);
    if (dw.adds || frame.accumulate) {
      add(n, target, plain.in(frame), target);
    } else {
      std::copy_n(plain.in(frame), n, target);
    }
  });
}

void lower_input_gradient(Lowering& lowering, const Group& group, const Geometry& g, const Ref& dz,
                          const dnnl::convolution_forward::primitive_desc& hint) {
  const Node& node = lowering.node(group);
  const dnnl::convolution_backward_data::primitive_desc description(
      {dnnl::algorithm::convolution_direct, g.src, g.weights_any, g.dst_operand, g.strides,
       g.pad_before, g.pad_after},
      onednn_attributes(), onednn_engine(), hint);
  const Ref dx = lowering.contribution(group.inputs[0]);
  BoundPrimitive convolution{dnnl::convolution_backward_data(description)};
  convolution.bind(DNNL_ARG_DIFF_SRC, g.src, dx);
  convolution.bind(DNNL_ARG_WEIGHTS, description.weights_desc(),
                   packed_weights(lowering, node, g, description.weights_desc()));
  convolution.bind(DNNL_ARG_DIFF_DST, g.dst_operand, dz);
  convolution.bind_scratchpad(description.scratchpad_desc());
  lowering.emit(
      std::make_unique<PrimitiveKernel>(node.name + " input gradient", std::move(convolution)),
      {dz, dx});
  lowering.contributed(group.inputs[0], dx);
}

void backward(Lowering& lowering, const Group& group) {
  if (group.pool >= 0) return own_conv_pool_backward(lowering, group);
  const Node& node = lowering.node(group);
  const Geometry g = geometry_of(lowering, group);
  const Backward::Step& step = lowering.backward_step(group);
  const int64_t rows = lowering.rows() * g.out_pixels;
  Ref dz = product_gradient(lowering, group, rows, g.filters);
  if (lowering.options.precision == Precision::kBf16) {
    dz = lowering.operand(dz, static_cast<size_t>(rows * g.filters), node.name + " gradient",
                          operand_form());
  }
  if (owns_convolution(lowering, group)) {
    if (step.wants_parameters) own_conv_weight_gradient(lowering, group, dz);
    if (step.wants_input[0]) own_conv_input_gradient(lowering, group, dz);
    return;
  }
  const auto hint = forward_description(g, onednn_attributes());
  if (step.wants_parameters) lower_weight_gradient(lowering, group, g, dz, hint);
  if (step.wants_input[0]) lower_input_gradient(lowering, group, g, dz, hint);
}

}  // namespace

const Family kConvFamily{
    .knows = [](const Operator& op) { return dynamic_cast<const Conv2dOp*>(&op) != nullptr; },
    .forward = forward,
    .backward = backward};

}  // namespace starling
