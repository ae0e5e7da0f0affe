#include "strategy/merge_cache.h"

namespace starling {

const MergePlan& MergeCache::plan(int64_t samples, const std::vector<ShardRange>& ranges) {
  for (const Entry& entry : entries_) {
    if (entry.samples == samples && entry.ranges == ranges) return entry.plan;
  }
  // Leaves are the shards that have rows, numbered in order.
  const int shards = executor_.options().shards;
  std::vector<size_t> leaf(static_cast<size_t>(shards) + 1, 0);
  for (int shard = 0; shard < shards; ++shard) {
    const bool present =
        shard_begin(samples, shard, shards) < shard_begin(samples, shard + 1, shards);
    leaf[static_cast<size_t>(shard) + 1] = leaf[static_cast<size_t>(shard)] + (present ? 1 : 0);
  }
  std::vector<LeafRange> parts;
  for (const ShardRange& range : ranges) {
    for (const ShardRange& group : executor_.groups_of(samples, range))
      parts.push_back(
          {leaf[static_cast<size_t>(group.begin)], leaf[static_cast<size_t>(group.end)]});
  }
  entries_.push_back({samples, ranges, MergePlan(std::move(parts))});
  return entries_.back().plan;
}

}  // namespace starling
