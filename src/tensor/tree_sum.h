// The fixed binary tree in which shards are summed. It is a function of their number alone: it
// splits at the largest power of two below the count, so that five shards are
// ((0+1)+(2+3))+4 whoever computed them, in whatever order they arrived. Every sum over shards or
// blocks that is part of a job's numbers goes through here; empty shards are left out by the
// caller, and the tree is over those present, in index order. Everything is thread-safe and
// nothing allocates.
//
// A build with STARLING_SWAPPED_TREE can be told to exchange leaves 1 and 2 of every sum: a test
// of exactness that doesn't fail then tests nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <span>

namespace starling {

// How many of `count` leaves are in the left subtree; requires count ≥ 2.
constexpr size_t tree_split(size_t count) { return std::bit_floor(count - 1); }

// Sums of up to so many leaves are made in registers, in one pass.
inline constexpr size_t kTreeLeavesInRegisters = 8;

// Merges values pairwise by merge(left, right) along the tree; requires at least one value.
template <class T, class Merge>
T tree_reduce(std::span<const T> values, Merge&& merge) {
  if (values.size() == 1) return values[0];
  const size_t left = tree_split(values.size());
  const T a = tree_reduce<T>(values.first(left), merge);
  return merge(a, tree_reduce<T>(values.subspan(left), merge));
}

// The sum of values along the tree; 0 for none.
double tree_sum(std::span<const double> values);

// dst[i] = the sum of shards[·][i] along the tree, for i < n; requires at least one shard. dst may
// be the first shard, but may not overlap another.
void tree_sum(std::span<const float* const> shards, size_t n, float* dst);

// For those who add vectors up themselves (tree_sum-inl.h): brings leaves into the order in which
// the tree takes them, which is the one they have but in a build that gets it wrong.
void order_leaves(std::span<const float*> leaves);

#ifdef STARLING_SWAPPED_TREE
// From now on sums of three leaves or more go along the wrong tree, or again along the right one.
void set_swapped_tree(bool on);
#endif

}  // namespace starling
