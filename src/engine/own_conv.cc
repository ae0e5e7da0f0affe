#include "engine/own_conv.h"

#include "base/isa.h"
#include "tensor/conv_patches.h"
#include "tensor/conv_winograd.h"

namespace starling {
namespace {

// Transformed weights are four times as large as the weights: beyond this, reading them costs what
// the saved products bring.
constexpr int64_t kWinogradWeights = 256 * 256;

// With fewer channels, patches were no faster than oneDNN in the plan of a residual CNN.
constexpr int64_t kPatchChannels = 32;

struct Sizes {
  Window window;
  int64_t rows, in_h, in_w, channels, out_h, out_w, filters;
  int64_t taps() const { return window.kernel_h * window.kernel_w; }
  int64_t out_pixels() const { return out_h * out_w; }
};

const Conv2dOp::Options& options_of(const Lowering& lowering, const Group& group) {
  return static_cast<const Conv2dOp&>(*lowering.node(group).op).options;
}

Sizes sizes_of(const Lowering& lowering, const Group& group) {
  const auto& options = options_of(lowering, group);
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const Window w = options.window.resolved(in[0], in[1]);
  return {w, lowering.rows(), in[0], in[1], in[2], w.out_h(in[0]), w.out_w(in[1]), options.filters};
}

// Whether tiles of 4×4 outputs are filled well enough that fewer products pay for the transforms.
bool fills_tiles(int64_t height, int64_t width) {
  return height * width >= 6 * ((height + 3) / 4) * ((width + 3) / 4);
}

bool uses_winograd(const Sizes& s) {
  const Window& w = s.window;
  return w.kernel_h == 3 && w.kernel_w == 3 && w.stride_h == 1 && w.stride_w == 1 &&
         w.pad_top <= 2 && w.pad_left <= 2 && s.channels % 8 == 0 && s.filters % 8 == 0 &&
         s.channels * s.filters <= kWinogradWeights && fills_tiles(s.out_h, s.out_w) &&
         fills_tiles(s.in_h, s.in_w);
}

// oneDNN's convolutions for AVX-512 take half the time of patches.
bool uses_patches(const Sizes& s) {
  return isa_name() != "avx512" && s.channels >= kPatchChannels && s.taps() <= kPatchTaps;
}

WinogradShape winograd_shape(const Sizes& s) {
  return {.rows = s.rows,
          .in_h = s.in_h,
          .in_w = s.in_w,
          .channels = s.channels,
          .out_h = s.out_h,
          .out_w = s.out_w,
          .filters = s.filters,
          .pad_top = s.window.pad_top,
          .pad_left = s.window.pad_left};
}

Patches patches_of(const Sizes& s) {
  const Window& w = s.window;
  Patches patches{.rows = s.rows,
                  .in_h = s.in_h,
                  .in_w = s.in_w,
                  .channels = s.channels,
                  .grid_h = s.out_h,
                  .grid_w = s.out_w,
                  .step = w.stride_h};
  for (int64_t y = 0; y < w.kernel_h; ++y) {
    for (int64_t x = 0; x < w.kernel_w; ++x)
      patches.taps.push_back({y - w.pad_top, x - w.pad_left, y * w.kernel_w + x});
  }
  return patches;
}

// The pixels (y mod stride, x mod stride) of the input, as patches of the output's gradient.
Patches gradient_patches_of(const Sizes& s, int64_t phase_y, int64_t phase_x) {
  const Window& w = s.window;
  const int64_t step = w.stride_h;
  Patches patches{.rows = s.rows,
                  .in_h = s.out_h,
                  .in_w = s.out_w,
                  .channels = s.filters,
                  .grid_h = (s.in_h - phase_y + step - 1) / step,
                  .grid_w = (s.in_w - phase_x + step - 1) / step,
                  .step = 1};
  for (int64_t y = 0; y < w.kernel_h; ++y) {
    for (int64_t x = 0; x < w.kernel_w; ++x) {
      const int64_t down = phase_y + w.pad_top - y, across = phase_x + w.pad_left - x;
      if (down % step == 0 && across % step == 0)
        patches.taps.push_back({down / step, across / step, y * w.kernel_w + x});
    }
  }
  return patches;
}

Ref packed_patch_weights(const Lowering& lowering, const Node& node, const Patches& patches,
                         const PatchWeights& layout, std::string form) {
  for (const PatchTap& tap : patches.taps) form += " " + std::to_string(tap.index);
  return lowering.resources.packed.require(lowering.slice(node, 0).offset, form,
                                           patch_weight_floats(patches, layout.filters),
                                           [=](const float* weights, float* packed) {
                                             pack_patch_weights(patches, layout, weights, packed);
                                           });
}

// --- forward ----------------------------------------------------------------------------------

void winograd_forward(Lowering& lowering, const Group& group, const Sizes& s, const Ref& x,
                      const Ref& y) {
  const Node& node = lowering.node(group);
  const WinogradShape shape = winograd_shape(s);
  const int64_t channels = s.channels, filters = s.filters;
  const Ref transformed = lowering.resources.packed.require(
      lowering.slice(node, 0).offset, "winograd", winograd_weight_floats(channels, filters),
      [=](const float* from, float* to) { winograd_weights(channels, filters, from, to); });
  const Ref scratch = lowering.scratch(winograd_scratch_floats(shape));
  const Ref bias = node.parameters.size() > 1 ? lowering.weights(node, 1) : Ref{};
  const bool relu =
      group.activation >= 0 &&
      static_cast<const ActivationOp&>(*lowering.graph.node(group.activation).op).activation ==
          ActivationKind::kRelu;
  // Bias, residual and relu ride along; another activation comes after all of them.
  const bool rides = group.activation < 0 || relu;
  const Ref residual = rides && group.residual >= 0 ? lowering.value(group.residual_input) : Ref{};
  lowering.emit(node.name + " forward", {x, y, residual, scratch}, [=](const Frame& frame) {
    const WinogradEpilogue epilogue{.bias = bias ? bias.in(frame) : nullptr,
                                    .residual = residual ? residual.in(frame) : nullptr,
                                    .relu = relu};
    winograd_convolution(shape, x.in(frame), transformed.in(frame), epilogue, y.in(frame),
                         scratch.in(frame));
  });
  if (!rides) emit_epilogue(lowering, group, y, s.rows * s.out_pixels(), filters, false);
}

void patch_forward(Lowering& lowering, const Group& group, const Sizes& s, const Ref& x,
                   const Ref& y) {
  const Node& node = lowering.node(group);
  const Patches patches = patches_of(s);
  const PatchWeights layout{s.filters, s.channels * s.taps(), s.taps()};
  const PatchTarget target{s.out_h, s.out_w, 1, 0, 0};
  const Ref packed = packed_patch_weights(lowering, node, patches, layout, "patches");
  const Ref scratch = lowering.scratch(patch_scratch_floats(patches));
  lowering.emit(node.name + " forward", {x, y, scratch},
                [=, filters = s.filters](const Frame& frame) {
                  patch_convolution(patches, target, filters, x.in(frame), packed.in(frame),
                                    nullptr, y.in(frame), scratch.in(frame));
                });
  emit_epilogue(lowering, group, y, s.rows * s.out_pixels(), s.filters, node.parameters.size() > 1);
}

// --- gradient of the input --------------------------------------------------------------------

// What the gradient of a value was, and where its sum with one more contribution goes.
struct Sum {
  Ref before, after;  // `before` is empty for the first contribution, and may be `after`
};

void winograd_input_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                             const Sum& dx) {
  const int64_t channels = s.channels, filters = s.filters;
  const WinogradShape shape{.rows = s.rows,
                            .in_h = s.out_h,
                            .in_w = s.out_w,
                            .channels = filters,
                            .out_h = s.in_h,
                            .out_w = s.in_w,
                            .filters = channels,
                            .pad_top = 2 - s.window.pad_top,
                            .pad_left = 2 - s.window.pad_left};
  const Ref transformed = lowering.resources.packed.require(
      lowering.slice(node, 0).offset, "winograd of the gradient",
      winograd_weight_floats(filters, channels), [=](const float* from, float* to) {
        winograd_weights_of_gradient(channels, filters, from, to);
      });
  const Ref scratch = lowering.scratch(winograd_scratch_floats(shape));
  lowering.emit(node.name + " input gradient", {dz, dx.before, dx.after, scratch},
                [=](const Frame& frame) {
                  winograd_convolution(shape, dz.in(frame), transformed.in(frame),
                                       {.residual = dx.before ? dx.before.in(frame) : nullptr},
                                       dx.after.in(frame), scratch.in(frame));
                });
}

void patch_input_gradient(Lowering& lowering, const Node& node, const Sizes& s, const Ref& dz,
                          const Sum& dx) {
  const PatchWeights layout{s.channels, s.taps(), s.channels * s.taps()};
  const int64_t step = s.window.stride_h;
  for (int64_t y = 0; y < std::min(step, s.in_h); ++y) {
    for (int64_t x = 0; x < std::min(step, s.in_w); ++x) {
      const Patches patches = gradient_patches_of(s, y, x);
      // Where no output looks, the gradient stays as it is.
      if (patches.taps.empty() && dx.before && dx.before.buffer == dx.after.buffer) continue;
      const PatchTarget target{s.in_h, s.in_w, step, y, x};
      const Ref packed =
          packed_patch_weights(lowering, node, patches, layout, "patches of the gradient");
      const Ref scratch = lowering.scratch(patch_scratch_floats(patches));
      lowering.emit(node.name + " input gradient", {dz, dx.before, dx.after, scratch},
                    [=, channels = s.channels](const Frame& frame) {
                      patch_convolution(patches, target, channels, dz.in(frame), packed.in(frame),
                                        dx.before ? dx.before.in(frame) : nullptr,
                                        dx.after.in(frame), scratch.in(frame));
                    });
    }
  }
}

}  // namespace

bool owns_convolutions(const PlanOptions& options) { return options.precision == Precision::kF32; }

bool owns_convolution(const Lowering& lowering, const Group& group) {
  if (!owns_convolutions(lowering.options)) return false;
  const auto& options = options_of(lowering, group);
  const Sizes s = sizes_of(lowering, group);
  return options.groups == 1 && s.filters % 8 == 0 && s.channels % 8 == 0 &&
         options.window.stride_h == options.window.stride_w &&
         (uses_winograd(s) || uses_patches(s));
}

void own_conv_forward(Lowering& lowering, const Group& group) {
  const Sizes s = sizes_of(lowering, group);
  const Ref x = lowering.value(group.inputs[0]), y = lowering.make_value(group.output);
  (uses_winograd(s) ? winograd_forward : patch_forward)(lowering, group, s, x, y);
}

void own_conv_weight_gradient(Lowering& lowering, const Group& group, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const Ref x = lowering.value(group.inputs[0]);
  const Lowering::Target dw = lowering.parameter_gradient(node, 0);
  const std::string label = node.name + " weight gradient";
  if (uses_winograd(s)) {
    const WinogradShape shape = winograd_shape(s);
    const Ref scratch = lowering.scratch(winograd_gradient_scratch_floats(shape));
    lowering.emit(label, {x, dz, scratch}, [=](const Frame& frame) {
      winograd_weight_gradient(shape, x.in(frame), dz.in(frame), dw.adds || frame.accumulate,
                               dw.ref.in(frame), scratch.in(frame));
    });
    return;
  }
  const Patches patches = patches_of(s);
  const PatchWeights layout{s.filters, s.channels * s.taps(), s.taps()};
  const Ref scratch = lowering.scratch(patch_gradient_scratch_floats(patches, s.filters));
  lowering.emit(label, {x, dz, scratch}, [=](const Frame& frame) {
    patch_weight_gradient(patches, layout, x.in(frame), dz.in(frame), dw.adds || frame.accumulate,
                          dw.ref.in(frame), scratch.in(frame));
  });
}

void own_conv_input_gradient(Lowering& lowering, const Group& group, const Ref& dz) {
  const Node& node = lowering.node(group);
  const Sizes s = sizes_of(lowering, group);
  const ValueId input = group.inputs[0];
  Sum dx{.before = lowering.gradient(input), .after = {}};
  dx.after = dx.before ? lowering.gradient_to_change(input) : lowering.contribution(input);
  (uses_winograd(s) ? winograd_input_gradient : patch_input_gradient)(lowering, node, s, dz, dx);
  if (!dx.before) lowering.contributed(input, dx.after);
}

}  // namespace starling
