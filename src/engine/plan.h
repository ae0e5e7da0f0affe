// Plan: a graph, or a part of one, compiled for one number of rows and one precision.
//
// It is a list of kernels over one arena: forward, loss and metrics, then backward. Gradients of
// parameters are written where the exchange reads them: into the shard's flat gradient. A plan
// belongs to one lane (kernels keep scratch) and is run by one thread at a time; the arena is the
// caller's, so that the plans of one lane share it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "engine/frame.h"
#include "engine/kernel.h"
#include "engine/late_layout.h"
#include "engine/moments_layout.h"
#include "engine/packed_weights.h"
#include "graph/graph.h"
#include "starling/loss.h"
#include "starling/precision.h"
#include "tensor/parameter_space.h"

namespace starling {

struct PlanOptions {
  int64_t rows = 1;
  // How many shards of equal size the rows are, one after another; a power of two. Their gradients
  // come out as one sum, along the shard tree. More than one only where can_stack() says so.
  int shards = 1;
  Precision precision = Precision::kF32;
  bool training = true;          // false: forward only, running statistics, no dropout
  bool input_gradients = false;  // a pipeline stage hands them on
  LossPtr loss;                  // null: a stage without the loss; it gets its output's gradient
  std::vector<MetricPtr> metrics;
  bool fuse = true;
  const LateLayout* late = nullptr;  // gradients that are left to others, if any; outlives the plan
};

// Whether a plan can compute several shards of `shard_rows` rows at once: every operator treats
// rows one by one, and parameters are those of dense layers that we multiply ourselves, each used
// once.
bool can_stack(const Graph& graph, int64_t shard_rows);

// Whether a plan for a shard of so many rows computes all of a gradient before it adds it, once, to
// what is there: as the shard tree would add it.
bool adds_once(const Graph& graph, Precision precision, int64_t shard_rows);

// Whether arithmetic that meets an infinity or a NaN raises the processor's flags in such a plan.
// What multiplies bf16 does not, but for our products, which look at their results; rounding doesn't
// either.
bool raises_flags(const Graph& graph, Precision precision);

// What plans of one process share.
struct PlanResources {
  const ParameterSpace& parameters;
  const MomentsLayout& moments;
  PackedWeights& packed;
};

class Plan {
 public:
  Plan(const Graph& graph, const PlanOptions& options, PlanResources resources);

  // frame.base[kArena] has arena_floats() floats; kFeatures and kLabels have `rows` rows.
  void forward(const Frame& frame);
  // After forward on the same frame. Without a loss, frame.base[kGradOutput] is the gradient of
  // the output.
  void backward(const Frame& frame);
  // The same, and calls after(i) when kernel i has run.
  void backward(const Frame& frame, FunctionRef<void(int kernel)> after);

  const float* output(const Frame& frame) const { return output_.in(frame); }
  // The gradient of the graph's input, after backward; requires input_gradients.
  const float* input_gradient(const Frame& frame) const { return input_gradient_.in(frame); }

  size_t arena_floats() const { return arena_floats_; }
  int64_t rows() const { return options_.rows; }
  std::span<const std::unique_ptr<Kernel>> kernels() const { return kernels_; }
  size_t backward_begin() const { return backward_begin_; }

  // The index of the kernel after which the gradient of parameter slice `slice` is complete;
  // −1 when this plan does not compute it.
  int ready_after(size_t slice) const { return ready_after_[slice]; }
  // The same for all slices of which a bucket has a part: when the last of them is complete.
  int ready_after(const ParameterSpace& space, const Bucket& bucket) const;

 private:
  friend class Lowering;
  PlanOptions options_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::deque<ArenaBuffer> buffers_;
  size_t arena_floats_ = 0;
  size_t backward_begin_ = 0;
  Ref output_;
  Ref input_gradient_;
  std::vector<int> ready_after_;
};

}  // namespace starling
