#include "engine/shards.h"

#include <algorithm>
#include <bit>

namespace starling {
namespace {

// Aligned powers of two, at most `most` shards each.
std::vector<ShardRange> cut(ShardRange range, int most) {
  std::vector<ShardRange> groups;
  for (int first = range.begin; first < range.end;) {
    const int aligned = first == 0 ? most : std::min(most, 1 << std::countr_zero(unsigned(first)));
    const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(range.end - first)));
    const int size = std::min(aligned, left);
    groups.push_back({first, first + size});
    first += size;
  }
  return groups;
}

// The shards of the busiest lane, when lanes take groups in order as they come free.
int busiest(const std::vector<ShardRange>& groups, int lanes) {
  std::vector<int> load(static_cast<size_t>(lanes), 0);
  for (const ShardRange& group : groups)
    *std::min_element(load.begin(), load.end()) += group.size();
  return *std::max_element(load.begin(), load.end());
}

}  // namespace

std::vector<ShardRange> group_shards(const Grouping& grouping, ShardRange range) {
  std::vector<ShardRange> best;
  for (int shard = range.begin; shard < range.end; ++shard) {
    const int64_t rows = shard_begin(grouping.samples, shard + 1, grouping.shards) -
                         shard_begin(grouping.samples, shard, grouping.shards);
    if (rows > 0) best.push_back({shard, shard + 1});
  }
  // Shards that are stacked have equally many rows.
  if (grouping.samples % grouping.shards != 0) return best;
  const int64_t rows = grouping.samples / grouping.shards;
  for (int size = 2; size <= range.size() && size * rows <= grouping.stacked_rows; size *= 2) {
    std::vector<ShardRange> groups = cut(range, size);
    if (busiest(groups, grouping.lanes) <= busiest(best, grouping.lanes)) best = std::move(groups);
  }
  return best;
}

}  // namespace starling
