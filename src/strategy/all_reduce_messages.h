// `all_reduce` of workers that share no memory: each has its own weights and optimizer state, and
// makes the whole update itself, from the same summed gradient. A worker sums its stacks to the
// fewest subtrees of the shard tree, and buckets of them are reduced by messages, several at a time
// (collective/). Rows of the board, and the wish to stop, go along.
#pragma once

#include "cluster/world.h"
#include "collective/collectives.h"
#include "engine/executor.h"
#include "strategy/merge_cache.h"
#include "strategy/strategy.h"

namespace starling {

class AllReduceMessages final : public Strategy {
 public:
  // All outlive it. With `exact` false, sums need not keep the tree.
  AllReduceMessages(World& world, Executor& executor, const ParameterSpace& space, bool exact);

  const char* name() const override { return "all_reduce"; }
  int rank() const override { return world_.rank(); }
  int workers() const override { return world_.workers(); }
  ShardRange shards() const override { return merges_.placement()[static_cast<size_t>(rank())]; }
  Status exchange(const StepSize& step, bool& stop) override;
  GradientParts parts() const override { return {&one_, {&sum_, 1}}; }
  BlockRange blocks() const override { return {0, space_.blocks().size()}; }
  bool moves_statistics() const override { return true; }
  Status share(std::span<double>) override { return {}; }
  Status commit(bool&) override { return {}; }
  uint64_t bytes_moved() const override;
  Seconds seconds() const override { return {.communication = communication_, .waiting = 0}; }

 private:
  // What is the same for every step of one size.
  struct Layout {
    StepSize step;
    std::shared_ptr<const Placement> placement;
    std::vector<MergePlan> plans;     // of this worker's partials, over its stacks
    std::vector<size_t> first_stack;  // of each partial, and the end
  };

  const Layout& layout_of(const StepSize& step);
  void sum_stacks(const Layout& layout);
  Status reduce(const Layout& layout);
  Status gather_board(bool& stop);

  World& world_;
  Executor& executor_;
  const ParameterSpace& space_;
  MergeCache merges_;
  Collectives collectives_;
  const MergePlan one_{{{0, 1}}};
  std::list<Layout> layouts_;
  Buffer<float> nothing_;  // the sum of a worker that had no shard
  std::vector<const float*> partials_;
  float* sum_ = nullptr;
  std::vector<std::byte> stops_;
  double communication_ = 0;
};

}  // namespace starling
