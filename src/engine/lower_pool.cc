// Pooling: our own kernels. Max pooling remembers the winner's place in one byte per output, so
// that its input need not be kept; a relu before it runs on the pooled values instead.
#include "engine/lowering.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

PoolShape pool_shape(const Lowering& lowering, const Group& group) {
  const Window& unresolved = static_cast<const Pool2dOp&>(*lowering.node(group).op).window;
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const Window w = unresolved.resolved(in[0], in[1]);
  return {.rows = lowering.rows(),
          .in_h = in[0],
          .in_w = in[1],
          .channels = in[2],
          .out_h = w.out_h(in[0]),
          .out_w = w.out_w(in[1]),
          .kernel_h = w.kernel_h,
          .kernel_w = w.kernel_w,
          .stride_h = w.stride_h,
          .stride_w = w.stride_w,
          .pad_top = w.pad_top,
          .pad_left = w.pad_left};
}

bool is_max(const Lowering& lowering, const Group& group) {
  return static_cast<const Pool2dOp&>(*lowering.node(group).op).mode == Pool2dOp::Mode::kMax;
}

uint8_t* bytes(const Ref& ref, const Frame& frame) {
  return reinterpret_cast<uint8_t*>(ref.in(frame));
}

void forward(Lowering& lowering, const Group& group) {
  const PoolShape shape = pool_shape(lowering, group);
  const std::string label = lowering.node(group).name + " forward";
  const Ref x = lowering.value(group.inputs[0]);
  const Ref y = lowering.make_value(group.output);
  if (!is_max(lowering, group)) {
    lowering.emit(label, {x, y}, [=](const Frame& frame) {
      average_pool_forward(shape, x.in(frame), y.in(frame));
    });
    return;
  }
  const bool relu = group.activation >= 0;
  const Ref where = lowering.scratch(lowering.floats(group.output) / sizeof(float) + 1);
  lowering.saved(group) = where;
  lowering.emit(label, {x, y, where}, [=](const Frame& frame) {
    max_pool_forward(shape, relu, x.in(frame), y.in(frame), bytes(where, frame));
  });
}

void backward(Lowering& lowering, const Group& group) {
  // The group's first node (the relu, when one rides along) decides whether a gradient is wanted.
  if (!lowering.has_gradient(group.inputs[0])) return;
  const PoolShape shape = pool_shape(lowering, group);
  const std::string label = lowering.node(group).name + " backward";
  const Ref dy = lowering.gradient(group.output);
  const Ref dx = lowering.contribution(group.inputs[0]);
  if (!is_max(lowering, group)) {
    lowering.emit(label, {dy, dx}, [=](const Frame& frame) {
      average_pool_backward(shape, dy.in(frame), dx.in(frame));
    });
  } else {
    const bool relu = group.activation >= 0;
    const Ref y = relu ? lowering.value(group.output) : Ref{};
    const Ref where = lowering.saved(group);
    lowering.emit(label, {dy, dx, y, where}, [=](const Frame& frame) {
      max_pool_backward(shape, relu, relu ? y.in(frame) : nullptr, bytes(where, frame),
                        dy.in(frame), dx.in(frame));
    });
  }
  lowering.contributed(group.inputs[0], dx);
}

void global_forward(Lowering& lowering, const Group& group) {
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const int64_t rows = lowering.rows(), pixels = in[0] * in[1], channels = in[2];
  const Ref x = lowering.value(group.inputs[0]);
  const Ref y = lowering.make_value(group.output);
  lowering.emit(lowering.node(group).name + " forward", {x, y}, [=](const Frame& frame) {
    global_average_forward(rows, pixels, channels, x.in(frame), y.in(frame));
  });
}

void global_backward(Lowering& lowering, const Group& group) {
  if (!lowering.has_gradient(group.inputs[0])) return;
  const Shape& in = lowering.graph.value(group.inputs[0]).shape;
  const int64_t rows = lowering.rows(), pixels = in[0] * in[1], channels = in[2];
  const Ref dy = lowering.gradient(group.output);
  const Ref dx = lowering.contribution(group.inputs[0]);
  lowering.emit(lowering.node(group).name + " backward", {dy, dx}, [=](const Frame& frame) {
    global_average_backward(rows, pixels, channels, dy.in(frame), dx.in(frame));
  });
  lowering.contributed(group.inputs[0], dx);
}

}  // namespace

const Family kPoolFamily{.knows =
                             [](const Operator& op) {
                               const auto* pool = dynamic_cast<const Pool2dOp*>(&op);
                               return pool != nullptr && has_pool_kernel(*pool);
                             },
                         .forward = forward,
                         .backward = backward};

const Family kGlobalPoolFamily{.knows =
                                   [](const Operator& op) {
                                     const auto* pool = dynamic_cast<const GlobalPool2dOp*>(&op);
                                     return pool != nullptr &&
                                            pool->mode == Pool2dOp::Mode::kAverage;
                                   },
                               .forward = global_forward,
                               .backward = global_backward};

}  // namespace starling
