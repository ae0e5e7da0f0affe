// What rides along with a product or convolution as oneDNN post-operations.
#pragma once

#include "engine/lowering.h"
#include "engine/onednn.h"

namespace starling {

// Residual and activation of the group; `output` describes the product's output.
dnnl::primitive_attr group_attributes(const Lowering& lowering, const Group& group,
                                      const dnnl::memory::desc& output);

// Binds the residual, if the group has one.
void bind_group(const Lowering& lowering, const Group& group, const dnnl::memory::desc& output,
                BoundPrimitive& primitive);

}  // namespace starling
