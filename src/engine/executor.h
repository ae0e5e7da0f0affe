// Executor: computes batches on lanes.
//
// A batch of n samples is cut into S shards; shard i holds rows ⌊i·n/S⌋ … ⌊(i+1)·n/S⌋−1. Lanes take
// groups of shards as they come free; the gradients of a group are summed along the shard tree into
// the group's own flat gradient. Small shards of dense models are computed together, as one
// micro-batch; otherwise a group is one shard, and inside it micro-batches run one after another
// and add up. What a shard gives depends only on the weights, the batch and its index, so results
// have the same bits for every number of lanes.
//
// Plans are compiled when a number of rows is first seen and kept. Not thread-safe: one caller.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/lanes.h"
#include "engine/plan.h"
#include "engine/shards.h"

namespace starling {

struct ExecutorOptions {
  int lanes = 1;
  int shards = 1;
  int64_t micro_batch = 0;  // rows; 0: the whole shard
  Precision precision = Precision::kF32;
  uint64_t seed = 0;
  bool fuse = true;
};

// Reads the samples `ids`, one after another. Called from several lanes at once.
using RowReader =
    std::function<void(std::span<const uint64_t> ids, float* features, float* labels)>;

// Told of samples whose gradient has been computed, by the lane that did it.
using RowsObserver = std::function<void(std::span<const uint64_t> ids)>;

struct BatchRows {
  std::span<const uint64_t> samples;
  const float* features =
      nullptr;  // all rows, if they are in memory already; else `reader` reads them
  const float* labels = nullptr;
  const RowReader* reader = nullptr;
  const RowsObserver* observer = nullptr;
  uint32_t epoch = 0;
  bool has_labels = true;  // false: for predictions; labels are not looked at
};

// Sums over samples, added up in a fixed order.
struct Sums {
  int64_t samples = 0;
  double loss = 0;
  std::vector<double> metrics;
};

class Executor {
 public:
  // `weights` is the flat space and outlives this; so do the rest.
  Executor(const Graph& graph, LossPtr loss, std::vector<MetricPtr> metrics,
           const ParameterSpace& parameters, const MomentsLayout& moments, const float* weights,
           ExecutorOptions options);

  // The gradients of the mean loss of the batch, group by group. Throws Error for labels that
  // don't fit.
  const Sums& gradient(const BatchRows& batch);
  bool has_packed() const { return packed_.bytes() > 0; }

  // Of the last gradient(): the flat gradients of the groups, in shard order. Groups have equally
  // many shards, a power of two, so their sum along the tree is that of all shards.
  std::span<const float* const> group_gradients() const { return present_gradients_; }
  // The first of them, to hold the sum of all.
  float* first_gradient() { return const_cast<float*>(present_gradients_[0]); }
  // The moments of the shards that are not empty, and their numbers of rows.
  std::span<const double* const> shard_moments() const { return present_moments_; }
  std::span<const int64_t> shard_rows() const { return present_rows_; }

  // Forward only, on samples 0 … count−1, with the running `statistics`.
  Sums evaluate(const RowReader& reader, uint64_t count, const float* statistics);
  // The outputs of the model, row by row.
  std::vector<float> predict(const RowReader& reader, uint64_t count, const float* statistics);

  // After the weights have changed: lane `lane` refreshes its part of their packed copies.
  void refresh_packed(int lane) { packed_.refresh(lane, lanes_.count()); }

  Lanes& lanes() { return lanes_; }
  // Runs `work` on this thread as lanes run: with their settings.
  void run_alone(FunctionRef<void()> work) {
    alone_.run([&](int) { work(); });
  }
  const ExecutorOptions& options() const { return options_; }
  // Names the first layer with a value that is not finite, of the last batch; empty if none is.
  std::string find_non_finite(const BatchRows& batch, const float* statistics);

  // Bytes of activations (arenas), of group gradients and of packed weights.
  size_t arena_bytes() const;
  size_t gradient_bytes() const;
  size_t packed_bytes() const { return packed_.bytes(); }
  // Compiles what a batch of `samples` needs: so that memory is known, and the first step is quick.
  // Returns how many shards its groups have.
  int prepare(int64_t samples);
  // The rows of a micro-batch in a group of `shards` shards that has `rows` rows.
  int64_t micro_batch(int64_t rows, int shards) const;
  // The plan of lane 0 for micro-batches of `rows` rows in groups of `shards`: for descriptions.
  const Plan& plan(int64_t rows, int shards) { return lane_plan(0, rows, shards); }

 private:
  // Plans by numbers of rows and shards; 0 shards: for inference.
  struct Lane {
    std::map<std::pair<int64_t, int>, std::unique_ptr<Plan>> plans;
    Buffer<float> arena, features, labels, losses, metrics;
  };
  // A number of samples that all plans are compiled for.
  struct Prepared {
    int64_t samples;
    int group_shards;
  };
  struct Shard {
    std::vector<double> moments;
    Sums sums;
  };

  Plan& lane_plan(int lane, int64_t rows, int shards);
  // How many shards a batch of `samples` has in a group.
  int group_shards(int64_t samples) const;
  void run_group(int lane, int first_shard, int shards, const BatchRows& batch);
  void load_rows(int lane, Frame& frame, const BatchRows& batch, int64_t first, int64_t rows);
  // Runs `use(lane, chunk, plan, frame)` on every chunk of an evaluation, after its forward pass.
  using ChunkUse = FunctionRef<void(int lane, size_t chunk, Plan& plan, const Frame& frame)>;
  void run_inference(const RowReader& reader, uint64_t count, const float* statistics,
                     bool with_labels, ChunkUse use);
  // Adds what rows first … first + count − 1 of the plan's `rows` gave.
  void add_sums(int lane, int64_t rows, int64_t first, int64_t count, Sums& sums) const;

  const Graph& graph_;
  const LossPtr loss_;
  const std::vector<MetricPtr> metrics_;
  const ParameterSpace& parameters_;
  const MomentsLayout& moments_;
  const float* const weights_;
  const ExecutorOptions options_;
  const int64_t feature_floats_, label_floats_;
  PackedWeights packed_;
  Lanes lanes_;
  Lanes alone_{1};
  std::vector<Lane> lane_state_;
  std::vector<Prepared> prepared_;
  std::vector<Shard> shards_;
  std::vector<Buffer<float>> gradients_;  // of groups
  std::vector<const float*> present_gradients_;
  std::vector<const double*> present_moments_;
  std::vector<int64_t> present_rows_;
  std::vector<double> partial_sums_;
  Sums total_;
};

}  // namespace starling
