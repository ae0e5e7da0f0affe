// MergeCache: the stacks of all workers and how they are summed, for every size of step that has
// come: the full one, and the last of an epoch. A pure function of the job and the placement, so
// that every worker finds the same. One thread.
#pragma once

#include <list>
#include <vector>

#include "collective/merge_plan.h"
#include "engine/executor.h"

namespace starling {

// Shards over those workers that compute, of equal speed: contiguous, and so that the fewest parts
// are summed. The others have empty ranges.
std::vector<ShardRange> place_workers(int shards, const std::vector<bool>& computes);
// The same for others than equal numbers: one for each that computes.
std::vector<ShardRange> place_workers(std::span<const int> counts,
                                      const std::vector<bool>& computes);

class MergeCache {
 public:
  struct Merge {
    StepSize step;
    std::vector<std::vector<LeafRange>> stacks;  // by worker: leaves are the shards with rows
    MergePlan plan;                              // over the stacks of all
  };

  // Worker r computes the shards placement[r]; all have as many lanes. The executor outlives this.
  MergeCache(const Executor& executor, std::vector<ShardRange> placement)
      : executor_(executor), placement_(std::move(placement)) {}

  // The first call for a size makes it.
  const Merge& of(const StepSize& step);

  std::span<const ShardRange> placement() const { return placement_; }

 private:
  const Executor& executor_;
  const std::vector<ShardRange> placement_;
  std::list<Merge> merges_;
};

}  // namespace starling
