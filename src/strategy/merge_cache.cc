#include "strategy/merge_cache.h"

#include <algorithm>

#include "collective/placement.h"

namespace starling {

std::vector<ShardRange> place_workers(int shards, const std::vector<bool>& computes) {
  const auto workers = std::count(computes.begin(), computes.end(), true);
  std::vector<int> counts;
  for (const LeafRange& range :
       place_shards(static_cast<size_t>(shards), static_cast<size_t>(workers))) {
    counts.push_back(static_cast<int>(range.size()));
  }
  return place_workers(counts, computes);
}

std::vector<ShardRange> place_workers(std::span<const int> counts,
                                      const std::vector<bool>& computes) {
  std::vector<ShardRange> ranges;
  int begin = 0;
  for (const bool takes : computes) {
    const int end = begin + (takes ? counts.front() : 0);
    if (takes) counts = counts.subspan(1);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

const MergeCache::Merge& MergeCache::of(const StepSize& step) {
  for (const Merge& merge : merges_) {
    if (merge.step == step) return merge;
  }
  const int shards = executor_.options().shards;
  std::vector<size_t> leaf(static_cast<size_t>(shards) + 1, 0);
  for (int shard = 0; shard < shards; ++shard) {
    const bool present = step.has_rows(shard, shards);
    leaf[static_cast<size_t>(shard) + 1] = leaf[static_cast<size_t>(shard)] + (present ? 1 : 0);
  }
  std::vector<std::vector<LeafRange>> stacks;
  std::vector<LeafRange> parts;
  for (const ShardRange& range : placement_) {
    stacks.emplace_back();
    for (const ShardRange& stack : executor_.stacks_of(step, range)) {
      stacks.back().push_back(
          {leaf[static_cast<size_t>(stack.begin)], leaf[static_cast<size_t>(stack.end)]});
      parts.push_back(stacks.back().back());
    }
  }
  merges_.push_back({step, std::move(stacks), MergePlan(std::move(parts))});
  return merges_.back();
}

}  // namespace starling
