// Placement: which worker holds which shards, and what that means for the tree. Pure data: no
// worker, no message, no time, so that every rank computes the same one from the same numbers.
//
// The tree is over the shards that are present (a batch smaller than the number of shards leaves
// some empty); they are its leaves, numbered from 0. A worker holds a contiguous range of leaves.
// Its *partials* are the fewest whole subtrees that make up this range: it sums each in its own
// memory before anything is sent. The *merge* (merge_plan.h) joins everybody's partials to the
// bits of the whole tree. Immutable once made, thus thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collective/merge_plan.h"

namespace starling {

// Contiguous shards per worker, in rank order, counts balanced to within one. Of all such
// placements this is one with the fewest partials, so that whole subtrees stay together; among
// equals lower ranks have more. Requires at least one worker.
std::vector<LeafRange> place_shards(size_t shards, size_t workers);

// The leaves of a range of shards in a batch of `samples`: shards without a row are no leaves.
LeafRange present_leaves(LeafRange shards, size_t shard_count, size_t samples);

// The fewest whole subtrees of the tree over `leaves` that make up the range, in order.
std::vector<LeafRange> partials_of(LeafRange range, size_t leaves);

class Placement {
 public:
  // Ranges in rank order, which cover 0 … leaves without a gap; a range may be empty. Throws
  // input_error otherwise.
  explicit Placement(std::vector<LeafRange> ranges);

  // Every shard present, evenly spread.
  static Placement even(size_t shards, size_t workers);
  // Shards placed as given, in a batch of `samples`.
  static Placement of_batch(std::span<const LeafRange> shards, size_t samples);

  size_t workers() const { return ranges_.size(); }
  size_t leaves() const { return merge_.leaves(); }
  LeafRange range(size_t rank) const { return ranges_[rank]; }

  // The partials of one rank, in order, and of all: those of rank r are number
  // first_partial(r) … first_partial(r) + partials(r).size() − 1.
  std::span<const LeafRange> partials(size_t rank) const;
  std::span<const LeafRange> partials() const { return merge_.parts(); }
  size_t first_partial(size_t rank) const { return first_[rank]; }
  size_t partials_max() const;  // of any rank

  const MergePlan& merge() const { return merge_; }

  // Every rank has one partial and the tree above them is the perfect one: what halving-doubling
  // needs to add in tree order.
  bool is_aligned() const;

 private:
  std::vector<LeafRange> ranges_;
  std::vector<size_t> first_;  // per rank, and the end
  MergePlan merge_;
};

}  // namespace starling
