// Late gradients: those of large dense weights are not computed with the shards, but by whoever
// updates the weights, a few rows at a time, just before (engine/late_gradients.h). A shard leaves
// only the two operands of the product, which are small, where all who update can read them.
//
// Otherwise each lane writes the gradient of its shards, as large as the weights, and the update
// reads them all: where layers are wide, most of the bytes of a step. A late gradient never leaves
// the cache of the core that uses it. It has the same bits: the sums of shards are joined along the
// shard tree, in registers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "tensor/parameter_space.h"

namespace starling {

// dW = dzᵀ · x, over all rows of a step.
struct LateProduct {
  size_t slice;  // of the parameter space: out × in
  int64_t in, out;
  int64_t sample_rows;  // of the operands, for one sample
  size_t x, dz;         // where the operands of the step's first sample are in the area, in floats
};

// Which gradients of a step are late, and where their operands lie in the area that holds those of
// all shards. A pure function of the job and the step.
class LateLayout {
 public:
  // None are late in a step whose shards can't be computed as one stack.
  LateLayout(const Graph& graph, const ParameterSpace& space, int64_t samples, int shards);

  bool empty() const { return products_.empty(); }
  std::span<const LateProduct> products() const { return products_; }
  // That of a slice; null if it is not late.
  const LateProduct* find(size_t slice) const;

  int64_t samples() const { return samples_; }
  int shards() const { return shards_; }
  size_t floats() const { return floats_; }  // of the area

 private:
  int64_t samples_;
  int shards_;
  std::vector<LateProduct> products_;
  size_t floats_ = 0;
};

}  // namespace starling
