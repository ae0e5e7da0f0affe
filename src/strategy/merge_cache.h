// MergeCache: how the groups of all workers are summed, for every size of batch that has come: the
// full one, and the last of an epoch. A pure function of the job and the placement, so that every
// worker finds the same. One thread.
#pragma once

#include <list>
#include <vector>

#include "collective/merge_plan.h"
#include "engine/executor.h"

namespace starling {

class MergeCache {
 public:
  // The executor outlives it.
  explicit MergeCache(const Executor& executor) : executor_(executor) {}

  // The plan for a batch of `samples` whose shards are placed in `ranges`, one per worker, in
  // order; the first call for a size makes it.
  const MergePlan& plan(int64_t samples, const std::vector<ShardRange>& ranges);

 private:
  struct Entry {
    int64_t samples;
    std::vector<ShardRange> ranges;
    MergePlan plan;
  };

  const Executor& executor_;
  std::list<Entry> entries_;
};

}  // namespace starling
