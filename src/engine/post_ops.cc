#include "engine/post_ops.h"

namespace starling {

dnnl::primitive_attr group_attributes(const Lowering& lowering, const Group& group,
                                      const dnnl::memory::desc& output) {
  dnnl::post_ops post_ops;
  if (group.residual >= 0) post_ops.append_binary(dnnl::algorithm::binary_add, output);
  if (group.activation >= 0) {
    const auto& op = static_cast<const ActivationOp&>(*lowering.graph.node(group.activation).op);
    switch (op.activation) {
      case ActivationKind::kRelu:
        post_ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
        break;
      case ActivationKind::kLeakyRelu:
        post_ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, op.slope, 0);
        break;
      case ActivationKind::kSigmoid:
        post_ops.append_eltwise(1, dnnl::algorithm::eltwise_logistic, 0, 0);
        break;
      case ActivationKind::kTanh:
        post_ops.append_eltwise(1, dnnl::algorithm::eltwise_tanh, 0, 0);
        break;
      case ActivationKind::kGelu:
        break;  // never rides along: its backward pass needs its input
    }
  }
  dnnl::primitive_attr attributes = onednn_attributes();
  attributes.set_post_ops(post_ops);
  return attributes;
}

void bind_group(const Lowering& lowering, const Group& group, const dnnl::memory::desc& output,
                BoundPrimitive& primitive) {
  if (group.residual < 0) return;
  primitive.bind(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, output,
                 lowering.value(group.residual_input));
}

}  // namespace starling
