#include "engine/late_layout.h"

#include <algorithm>
#include <bit>

#include "engine/plan.h"
#include "graph/operators.h"
#include "tensor/buffer.h"

namespace starling {
namespace {

// Floats of weights from which it pays: gradients of fewer stay in the cache anyway.
constexpr size_t kLeastFloats = size_t{256} * 1024;
// Rows up to which it pays. The product packs more of its operands for each row of the gradient
// where there are more, and what it takes outweighs the bytes of the gradient.
constexpr int64_t kMostRows = 512;

}  // namespace

LateLayout::LateLayout(const Graph& graph, const ParameterSpace& space, int64_t samples, int shards)
    : samples_(samples), shards_(shards) {
  const bool equal = samples > 0 && samples % shards == 0;
  if (!equal || !std::has_single_bit(static_cast<unsigned>(shards)) ||
      !can_stack(graph, samples / shards)) {
    return;
  }
  constexpr size_t kStep = kAlignment / sizeof(float);
  const auto place = [&](int64_t count) {
    const size_t at = floats_;
    floats_ += round_up(static_cast<size_t>(count), kStep);
    return at;
  };
  for (const Backward::Step& step : differentiate(graph, false).steps) {
    const Node& node = graph.node(step.node);
    const auto* const op = dynamic_cast<const DenseOp*>(node.op.get());
    if (op == nullptr || !step.wants_parameters) continue;
    const Slice& slice = *space.find(node.parameters[0].name);
    const Shape& input = graph.value(node.inputs[0]).shape;
    const int64_t in = input.back(), sample_rows = input.elements() / in;
    const int64_t rows = samples * sample_rows;
    if (slice.size < kLeastFloats || rows > kMostRows) continue;
    products_.push_back({.slice = static_cast<size_t>(&slice - space.slices().data()),
                         .in = in,
                         .out = op->options.units,
                         .sample_rows = sample_rows,
                         .x = place(rows * in),
                         .dz = place(rows * op->options.units)});
  }
}

const LateProduct* LateLayout::find(size_t slice) const {
  const auto found = std::find_if(products_.begin(), products_.end(),
                                  [&](const LateProduct& p) { return p.slice == slice; });
  return found == products_.end() ? nullptr : &*found;
}

}  // namespace starling
