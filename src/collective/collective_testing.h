// What tests of collectives share: shards with random numbers, the partial sums that each worker of
// a placement would make of them, and the sum that all must end with.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "collective/collectives.h"
#include "tensor/tree_sum.h"

namespace starling {

inline std::vector<std::vector<float>> random_leaves(size_t count, size_t length, uint64_t seed) {
  std::vector<std::vector<float>> leaves(count, std::vector<float>(length));
  for (size_t k = 0; k < count; ++k) {
    const RandomStream stream(seed, Draw::kSynthetic, static_cast<uint32_t>(k));
    // Divided, so that all bits of a float are used: sums of round numbers are exact in any order.
    const float divisor = 3.0f + static_cast<float>(k);
    for (size_t i = 0; i < length; ++i) leaves[k][i] = (stream.uniform(i) - 0.5f) / divisor;
  }
  return leaves;
}

inline std::vector<const float*> pointers(const std::vector<std::vector<float>>& arrays) {
  std::vector<const float*> result;
  for (const auto& array : arrays) result.push_back(array.data());
  return result;
}

// Any contiguous split, empty ranges too.
inline std::vector<LeafRange> random_split(size_t leaves, size_t workers, uint64_t seed) {
  std::vector<size_t> cuts = {0, leaves};
  for (size_t k = 1; k < workers; ++k) cuts.push_back(mix64(seed * 64 + k) % (leaves + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<LeafRange> ranges;
  for (size_t k = 0; k < workers; ++k) ranges.push_back({cuts[k], cuts[k + 1]});
  return ranges;
}

// In the build with a swapped tree, all sums but the expected go along the wrong one.
inline void use_swapped_tree([[maybe_unused]] bool on) {
#ifdef STARLING_SWAPPED_TREE
  set_swapped_tree(on);
#endif
}

// One sum to be made by all workers.
struct SharedSum {
  std::shared_ptr<const Placement> placement;
  std::vector<std::vector<float>> parts;  // all, in leaf order
  std::vector<float> expected;

  SharedSum(Placement where, size_t length, uint64_t seed)
      : SharedSum(std::move(where), random_leaves(where.leaves(), length, seed), length) {}

  SharedSum(Placement where, const std::vector<std::vector<float>>& leaves, size_t length)
      : placement(std::make_shared<Placement>(std::move(where))), expected(length) {
    const std::vector<const float*> at = pointers(leaves);
    use_swapped_tree(false);
    if (!at.empty()) tree_sum(at, length, expected.data());
    use_swapped_tree(true);
    for (const LeafRange& part : placement->partials()) {
      parts.emplace_back(length);
      tree_sum(std::span(at).subspan(part.begin, part.size()), length, parts.back().data());
    }
  }

  size_t length() const { return expected.size(); }
  size_t first(int rank) const { return placement->first_partial(static_cast<size_t>(rank)); }
  size_t count(int rank) const { return placement->partials(static_cast<size_t>(rank)).size(); }
  // The partials of one rank: copies, which may be overwritten.
  std::vector<std::vector<float>> of(int rank) const {
    const auto begin = parts.begin() + static_cast<ptrdiff_t>(first(rank));
    return {begin, begin + static_cast<ptrdiff_t>(count(rank))};
  }
};

}  // namespace starling
