// Executor: computes batches on lanes.
//
// A batch of n samples is cut into S shards; shard i holds rows ⌊i·n/S⌋ … ⌊(i+1)·n/S⌋−1. Lanes take
// stacks of shards as they come free; the gradients of a stack are summed along the shard tree into
// the stack's own flat gradient. Small shards of dense models are computed together, as one
// micro-batch. Where a shard is one micro-batch, two of them may run one after another and add up.
// Otherwise a stack is one shard, and inside it micro-batches run one after another and add up,
// through all batches of a step. What a shard gives depends only on the weights, the batch and its
// index, so results have the same bits for every number of lanes.
//
// A worker that shares a batch with others computes a range of its shards. Then gradients and board
// may lie in memory that they share (ExecutorMemory).
//
// Plans are compiled when a number of rows is first seen and kept. Not thread-safe: one caller.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "engine/lanes.h"
#include "engine/late_gradients.h"
#include "engine/plan.h"
#include "engine/shard_board.h"
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

struct BatchRows {
  std::span<const uint64_t> samples;
  const float* features =
      nullptr;  // all rows, if they are in memory already; else `reader` reads them
  const float* labels = nullptr;
  const RowReader* reader = nullptr;
  uint32_t epoch = 0;
  bool has_labels = true;  // false: for predictions; labels are not looked at
  StepSize step = {};      // that this is a batch of; none: it is all of the step
  int64_t index = 0;       // of this batch in the step
};

// A lane's own copy of the weights, to compute with, which whoever updates weights writes, too.
struct LaneWeights {
  float* copy;
  size_t own_first, own_last;  // the floats that this lane updates
};

// Memory that is not the executor's own.
struct ExecutorMemory {
  double* board = nullptr;  // of ShardBoard
  // The flat gradient of stack `index` of this worker's stacks.
  std::function<float*(size_t index)> gradient = {};
  std::vector<LaneWeights> weights = {};  // of each lane; none: all compute with the same
  // An area of at least so many floats for the operands of late gradients, which all who update
  // can read; none: no gradient is late.
  std::function<float*(size_t floats)> late = {};
};

// Is told of buckets of a gradient before all of it is computed: for a strategy that sends them on.
class GradientWatch {
 public:
  virtual ~GradientWatch() = default;

  virtual std::span<const Bucket> buckets() const = 0;
  // The bucket is complete in all stacks, which is in the last micro-batch of each. Called on the
  // lane that completed it, once for each bucket; not at all when no stack has a sample.
  virtual void complete(size_t bucket) = 0;
};

class Executor {
 public:
  // `weights` is the flat space and outlives this; so do the rest.
  Executor(const Graph& graph, LossPtr loss, std::vector<MetricPtr> metrics,
           const ParameterSpace& parameters, const MomentsLayout& moments, const float* weights,
           ExecutorOptions options);

  // Puts gradients and board into other memory, which outlives this; what was there is forgotten.
  void use_memory(ExecutorMemory memory);
  // Computes with these weights from now on, which outlive this; the gradient of the first stack
  // goes to `gradient`.
  void move_to(const float* weights, float* gradient);
  ShardBoard::Layout board_layout() const;

  // The gradients of the mean loss of the step by the shards of `range`, stack by stack; the board
  // gets the rest. The first batch of a step begins anew, the others add to it. `watch` is for the
  // last batch. Throws Error for labels that don't fit.
  void gradient(const BatchRows& batch, ShardRange range, GradientWatch* watch = nullptr);
  void gradient(const BatchRows& batch) { gradient(batch, {0, options_.shards}); }
  ShardBoard& board() { return *board_; }

  // Of the last gradient(): the stacks in shard order, and their flat gradients.
  std::span<const ShardRange> stacks() const { return stacks_->ranges; }
  std::span<float* const> gradients() const {
    return std::span(gradients_).first(stacks_->ranges.size());
  }
  // And which lane has computed each.
  std::span<const int> stack_lanes() const {
    return std::span(stack_lanes_).first(stacks_->ranges.size());
  }
  // And what is late of them; null: nothing.
  LateGradients* late() const { return stacks_->late; }
  // What is late in such a step, given an area: a pure function of the job. Null: nothing.
  const LateLayout* late_layout(const StepSize& step);
  // The stacks of any worker's range in a step: a pure function of the job.
  std::vector<ShardRange> stacks_of(const StepSize& step, ShardRange range) const;

  // How many chunks an evaluation of `count` samples has.
  size_t chunk_count(uint64_t count) const;
  // Forward only, with the running `statistics`, on some chunks of samples 0 … count−1. Row c of
  // `rows` gets chunk c's number of samples and sums of loss and metrics.
  struct ChunkRange {
    size_t begin, end;
  };
  void evaluate(const RowReader& reader, uint64_t count, const float* statistics, ChunkRange chunks,
                std::span<double> rows);
  // The outputs of the model, row by row.
  std::vector<float> predict(const RowReader& reader, uint64_t count, const float* statistics);

  // After the weights have changed: brings the copies up to date that this computes with.
  void refresh();
  // The same after an update, which has written the lanes' own.
  void refresh_updated();

  Lanes& lanes() { return lanes_; }
  // Runs `work` on this thread as lanes run: with their settings.
  void run_alone(FunctionRef<void()> work) {
    alone_.run([&](int) { work(); });
  }
  const ExecutorOptions& options() const { return options_; }
  // Whether Lanes::raised() tells of all that is not finite.
  bool raises_flags() const { return raises_flags_; }
  // Names the first layer with a value that is not finite, of the last batch; empty if none is.
  std::string find_non_finite(const BatchRows& batch, const float* statistics);

  // Bytes of activations (arenas, and what late gradients are made of), of stack gradients and of
  // copies of weights.
  size_t arena_bytes() const;
  size_t gradient_bytes() const;
  size_t packed_bytes() const;
  // Compiles what these shards of a step need: so that memory is known, and the first step is
  // quick. Returns the stacks.
  std::span<const ShardRange> prepare(const StepSize& step, ShardRange range);
  std::span<const ShardRange> prepare(int64_t samples) {
    return prepare(StepSize::of_batch(samples), {0, options_.shards});
  }
  // The rows of a micro-batch in a stack of `shards` shards that has `rows` rows.
  int64_t micro_batch(int64_t rows, int shards) const;
  // The plan of lane 0 for micro-batches of `rows` rows in stacks of `shards`: for descriptions.
  const Plan& plan(int64_t rows, int shards) { return lane_plan(0, rows, shards); }

 private:
  // 0 shards: for inference.
  struct PlanKey {
    int64_t rows;
    int shards;
    const LateLayout* late;
    auto operator<=>(const PlanKey&) const = default;
  };
  struct Lane {
    std::map<PlanKey, std::unique_ptr<Plan>> plans;
    Buffer<float> arena, features, labels, losses, metrics;
    std::vector<int> ready;  // kernels after which buckets are complete
    Buffer<double> moments;  // of a shard in a batch that is not the first of its step
  };
  // A step and range that all plans are compiled for.
  struct Prepared {
    StepSize step;
    ShardRange range;
    std::vector<ShardRange> ranges;  // of stacks
    bool together = true;            // the shards of a stack, else one after another
    LateGradients* late = nullptr;
  };

  // Of the step that is prepared, if it is for training.
  Plan& lane_plan(int lane, int64_t rows, int shards);
  LateGradients* late_of(const StepSize& step);
  // The plans that the stacks need for a batch of `samples`.
  void compile(int64_t samples);
  // Whether the shards of a stack are computed together.
  bool computes_together(const StepSize& step) const;
  void run_stack(int lane, size_t index, const BatchRows& batch, GradientWatch* watch);
  // Shards of it that are computed together, or one.
  void run_part(int lane, size_t index, ShardRange part, const BatchRows& batch,
                GradientWatch* watch);
  // Calls use(part) for the parts of a stack, in order.
  template <typename Use>
  void for_parts(const ShardRange& stack, Use use) const;
  int64_t stack_begin(const BatchRows& batch, int shard) const;
  // The backward pass of a stack's last micro-batch.
  void backward_watched(int lane, Plan& plan, const Frame& frame, GradientWatch& watch);
  void load_rows(int lane, Frame& frame, const BatchRows& batch, int64_t first, int64_t rows);
  // Runs `use(lane, chunk, plan, frame)` on every chunk of an evaluation, after its forward pass.
  using ChunkUse = FunctionRef<void(int lane, size_t chunk, Plan& plan, const Frame& frame)>;
  void run_inference(const RowReader& reader, uint64_t count, const float* statistics,
                     ChunkRange chunks, bool with_labels, ChunkUse use);
  uint64_t chunk_rows() const;
  // What others are about to update of a lane's own weights (base/claim.h).
  void claim_weights(int lane);
  const float* weights_of(int lane) const {
    return memory_.weights.empty() ? weights_ : memory_.weights[static_cast<size_t>(lane)].copy;
  }

  const Graph& graph_;
  const LossPtr loss_;
  const std::vector<MetricPtr> metrics_;
  const ParameterSpace& parameters_;
  const MomentsLayout& moments_;
  const float* weights_;
  const ExecutorOptions options_;
  const bool raises_flags_;
  const int64_t feature_floats_, label_floats_;
  PackedWeights packed_;
  Lanes lanes_;
  Lanes alone_{1};
  std::vector<Lane> lane_state_;
  std::list<Prepared> prepared_;
  // By samples of a step.
  std::map<int64_t, LateLayout> late_layouts_;
  std::map<int64_t, LateGradients> late_;
  const Prepared* stacks_ = nullptr;  // of the last gradient()
  ExecutorMemory memory_;
  std::unique_ptr<ShardBoard> board_;
  std::vector<Buffer<float>> own_gradients_;
  std::vector<float*> gradients_;  // of stacks
  std::vector<int> stack_lanes_;
  std::vector<std::atomic<int>> to_complete_;  // stacks, by bucket of the watch
};

}  // namespace starling
