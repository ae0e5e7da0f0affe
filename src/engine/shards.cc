#include "engine/shards.h"

#include <algorithm>
#include <bit>

namespace starling {
namespace {

// Aligned powers of two, at most `most` shards each.
std::vector<ShardRange> cut(ShardRange range, int most) {
  std::vector<ShardRange> stacks;
  for (int first = range.begin; first < range.end;) {
    const int aligned = first == 0 ? most : std::min(most, 1 << std::countr_zero(unsigned(first)));
    const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(range.end - first)));
    const int size = std::min(aligned, left);
    stacks.push_back({first, first + size});
    first += size;
  }
  return stacks;
}

// The shards of the busiest lane, when lanes take stacks in order as they come free.
int busiest(const std::vector<ShardRange>& stacks, int lanes) {
  std::vector<int> load(static_cast<size_t>(lanes), 0);
  for (const ShardRange& stack : stacks)
    *std::min_element(load.begin(), load.end()) += stack.size();
  return *std::max_element(load.begin(), load.end());
}

}  // namespace

std::vector<ShardRange> stack_shards(const Stacking& stacking, ShardRange range) {
  std::vector<ShardRange> best;
  for (int shard = range.begin; shard < range.end; ++shard) {
    if (stacking.step.has_rows(shard, stacking.shards)) best.push_back({shard, shard + 1});
  }
  // Shards that are stacked have equally many rows.
  const int64_t samples = stacking.step.samples;
  if (stacking.step.batches() != 1 || samples % stacking.shards != 0) return best;
  for (int size = 2; size <= std::min(range.size(), stacking.most); size *= 2) {
    std::vector<ShardRange> stacks = cut(range, size);
    if (busiest(stacks, stacking.lanes) <= busiest(best, stacking.lanes)) best = std::move(stacks);
  }
  return best;
}

}  // namespace starling
