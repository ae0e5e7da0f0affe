#include "collective/placement.h"

#include <algorithm>
#include <limits>

#include "starling/error.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

void collect_partials(LeafRange range, LeafRange node, std::vector<LeafRange>& found) {
  if (range.end <= node.begin || node.end <= range.begin) return;
  if (range.begin <= node.begin && node.end <= range.end) {
    found.push_back(node);
    return;
  }
  const size_t middle = node.begin + tree_split(node.size());
  collect_partials(range, {node.begin, middle}, found);
  collect_partials(range, {middle, node.end}, found);
}

std::vector<LeafRange> ranges_of_counts(std::span<const size_t> counts) {
  std::vector<LeafRange> ranges;
  size_t begin = 0;
  for (const size_t count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

std::vector<LeafRange> checked(std::vector<LeafRange> ranges) {
  size_t end = 0;
  for (const LeafRange& range : ranges) {
    if (range.begin != end || range.end < range.begin) {
      throw input_error("shards of a placement are not contiguous in rank order",
                        "give every worker the shards that follow those of the worker before");
    }
    end = range.end;
  }
  if (ranges.empty()) throw input_error("a placement has no workers", "give it at least one");
  return ranges;
}

std::vector<LeafRange> all_partials(std::span<const LeafRange> ranges) {
  std::vector<LeafRange> all;
  for (const LeafRange& range : ranges) {
    for (const LeafRange& part : partials_of(range, ranges.back().end)) all.push_back(part);
  }
  return all;
}

}  // namespace

std::vector<LeafRange> partials_of(LeafRange range, size_t leaves) {
  std::vector<LeafRange> found;
  if (!range.empty()) collect_partials(range, {0, leaves}, found);
  return found;
}

std::vector<LeafRange> place_shards(size_t shards, size_t workers) {
  const size_t least = shards / workers, larger = shards % workers;
  // cost[w][k]: the fewest partials of workers w …, when k of those before had a shard more.
  const size_t width = larger + 1;
  constexpr size_t kNever = std::numeric_limits<size_t>::max() / 2;
  std::vector<size_t> cost((workers + 1) * width, kNever);
  std::vector<bool> takes_more((workers + 1) * width);
  cost[workers * width + larger] = 0;
  for (size_t w = workers; w-- > 0;) {
    for (size_t k = 0; k <= std::min(w, larger); ++k) {
      const size_t begin = w * least + k;
      size_t& best = cost[w * width + k];
      for (const size_t more : {size_t{1}, size_t{0}}) {
        const size_t next = cost[(w + 1) * width + std::min(k + more, larger)];
        if (k + more > larger || next == kNever) continue;
        const size_t own = partials_of({begin, begin + least + more}, shards).size();
        if (own + next >= best) continue;
        best = own + next;
        takes_more[w * width + k] = more == 1;
      }
    }
  }
  std::vector<size_t> counts(workers, least);
  for (size_t w = 0, k = 0; w < workers; ++w) {
    if (!takes_more[w * width + k]) continue;
    ++counts[w];
    ++k;
  }
  return ranges_of_counts(counts);
}

LeafRange present_leaves(LeafRange shards, size_t shard_count, size_t samples) {
  if (samples >= shard_count) return shards;
  // Shard i holds rows ⌊i·n/S⌋ … ⌊(i+1)·n/S⌋−1: with n < S that is one row or none.
  return {shards.begin * samples / shard_count, shards.end * samples / shard_count};
}

Placement::Placement(std::vector<LeafRange> ranges)
    : ranges_(checked(std::move(ranges))), merge_(all_partials(ranges_)) {
  first_.push_back(0);
  for (const LeafRange& range : ranges_) {
    first_.push_back(first_.back() + partials_of(range, leaves()).size());
  }
}

Placement Placement::even(size_t shards, size_t workers) {
  return Placement(place_shards(shards, workers));
}

Placement Placement::of_batch(std::span<const LeafRange> shards, size_t samples) {
  std::vector<LeafRange> ranges;
  for (const LeafRange& range : shards) {
    ranges.push_back(present_leaves(range, shards.back().end, samples));
  }
  return Placement(std::move(ranges));
}

std::span<const LeafRange> Placement::partials(size_t rank) const {
  return merge_.parts().subspan(first_[rank], first_[rank + 1] - first_[rank]);
}

size_t Placement::partials_max() const {
  size_t most = 0;
  for (size_t rank = 0; rank < workers(); ++rank) most = std::max(most, partials(rank).size());
  return most;
}

bool Placement::is_aligned() const {
  if ((workers() & (workers() - 1)) != 0 || !merge_.is_canonical()) return false;
  for (size_t rank = 0; rank < workers(); ++rank) {
    if (partials(rank).size() != 1) return false;
  }
  return true;
}

}  // namespace starling
