// Convolutions by our own kernels, for f32, where oneDNN has no better ones: Winograd's for 3×3
// windows with stride 1 (tensor/conv_winograd.h), a convolution that pools its output
// (tensor/conv_pool.h), and below AVX-512 products of patches for the rest (tensor/conv_patches.h).
#pragma once

#include "engine/lowering.h"

namespace starling {

// Whether ours may run in such a plan, and whether it runs this group: functions of the machine,
// the precision and the shape.
bool owns_convolutions(const PlanOptions& options);
bool owns_convolution(const Lowering& lowering, const Group& group);

void own_conv_forward(Lowering& lowering, const Group& group);
// `dz` is the gradient at the convolution's output.
void own_conv_weight_gradient(Lowering& lowering, const Group& group, const Ref& dz);
void own_conv_input_gradient(Lowering& lowering, const Group& group, const Ref& dz);

// The same for a group with a pool (fusion.h): the convolution's output is never there.
void own_conv_pool_forward(Lowering& lowering, const Group& group);
void own_conv_pool_backward(Lowering& lowering, const Group& group);

}  // namespace starling
