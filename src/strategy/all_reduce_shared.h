// `all_reduce` of workers that share memory: there is one copy of the weights and of the optimizer
// state. Each worker's kernels write their gradients into shared memory; each worker sums a slice
// of the blocks, reading the others' gradients where they lie, and updates it for all. Nothing is
// copied or sent: a step is two barriers (three with clipping by norm). Where some workers only
// serve, only they have blocks to update (`parameter_server`). Small weights may have copies
// (strategy/weight_copies.h), and gradients of large ones may be late (engine/late_layout.h): then
// what kernels write are their operands.
//
// A worker that dies before a barrier is a failure there for all others, at once. When it had
// arrived at the last one before the update, its gradients are all there, and the others complete
// the step with its blocks divided among them.
#pragma once

#include <vector>

#include "cluster/world.h"
#include "engine/executor.h"
#include "strategy/merge_cache.h"
#include "strategy/strategy.h"

namespace starling {

class AllReduceShared final : public Strategy {
 public:
  // `placement` has the shards of each worker, `steps` the sizes that steps will have. The executor
  // gets its memory here, and it, the world and this live and die together. All workers make it at
  // the same time.
  AllReduceShared(const char* name, World& world, Executor& executor, const ParameterSpace& space,
                  std::vector<ShardRange> placement, const std::vector<StepSize>& steps);
  ~AllReduceShared() override;

  const char* name() const override { return name_; }
  int rank() const override { return rank_; }
  int workers() const override { return workers_; }
  ShardRange shards() const override { return merges_.placement()[static_cast<size_t>(rank())]; }
  Status exchange(const StepSize& step, Wishes& wishes) override;
  GradientParts parts() const override { return {&merge_->plan, parts_, 0, writers_}; }
  BlockRange blocks() const override;
  bool moves_statistics() const override { return world_.is_chief(); }
  void look() override { world_.retract(); }
  Status share(std::span<double> block_sums) override;
  std::span<float* const> weight_copies() const override { return copies_; }
  void begin_update() override { world_.begin_completion(); }
  Status commit(bool& finite) override;
  bool has_parts_of(std::span<const int> ranks, bool will_look) const override;
  void complete_here() override { completing_ = true; }
  void pass(FaultPoint point) const override { world_.pass(point); }
  uint64_t bytes_moved() const override { return bytes_moved_; }
  Seconds seconds() const override {
    return {.communication = 0, .hidden = 0, .waiting = waiting_};
  }

 private:
  struct Flags;

  // Announces this worker's part, unless it has, and waits for all others.
  Status meet();
  Status describe(const Status& met) const;
  float* gradient(size_t worker, size_t index) const;
  bool divides_equally() const;
  // What this worker reads of the others' in such a step, for its blocks.
  uint64_t bytes_read(const MergeCache::Merge& merge) const;
  Flags& flags(int rank) const;

  const char* const name_;
  World& world_;
  const int rank_, workers_;  // in the world for which this was made
  ShmFabric& fabric_;
  Executor& executor_;
  const ParameterSpace& space_;
  const size_t stride_;  // floats from one gradient to the next
  MergeCache merges_;
  std::vector<size_t> first_buffer_;  // of each worker, and the end
  std::optional<SharedSegment> segment_;
  std::byte* board_ = nullptr;
  double* sums_ = nullptr;
  std::byte* flags_ = nullptr;
  float* gradients_ = nullptr;
  float* late_ = nullptr;  // the area of late gradients
  const MergeCache::Merge* merge_ = nullptr;
  uint64_t step_bytes_ = 0;  // that are read in a step of that size
  std::vector<float*> parts_;
  std::vector<int> writers_;    // of parts
  std::vector<float*> copies_;  // of the weights, for each lane of each worker; or none
  uint64_t bytes_moved_ = 0;
  double waiting_ = 0;
  uint64_t arrived_ = 0;  // which meeting is waited for; 0: none
  bool completing_ = false;
};

}  // namespace starling
