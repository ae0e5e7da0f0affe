// Ownership: which worker keeps the optimizer state of which blocks. The space is cut into a slice
// for each worker that serves, at blocks and of about equal size, if no shares are given; with a
// replica, the one after the owner (the first after the last) keeps a copy. Workers are meant by
// name, so that an ownership still says who has what when some of them are gone. A pure function of
// its arguments: all workers make the same one. Immutable, thus thread-safe.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cluster/world.h"
#include "collective/slices.h"
#include "strategy/strategy.h"
#include "tensor/parameter_space.h"

namespace starling {

class Ownership {
 public:
  // Of nobody: there are no slices.
  Ownership() = default;
  // Slice i is that of members[i]. Replicas are 0 or 1; a worker alone keeps none. Those of
  // `keepers`, if any, have an empty slice: they keep copies only. Else slices may be given shares
  // of the space, whose sum is 1.
  Ownership(const ParameterSpace& space, std::vector<int> members, int replicas,
            std::vector<int> keepers = {}, std::vector<double> shares = {});

  // As another has it: slice i is of blocks block_cuts[i] … block_cuts[i + 1] − 1. Throws Error
  // when these don't fit the space and the members.
  static Ownership restored(const ParameterSpace& space, std::vector<int> members, int replicas,
                            std::vector<int> keepers, std::vector<size_t> block_cuts);

  const std::vector<int>& members() const { return members_; }
  const std::vector<int>& keepers() const { return keepers_; }
  int replicas() const { return replicas_; }
  size_t slices() const { return members_.size(); }
  bool has_copies() const { return replicas_ > 0 && slices() > 1; }
  BlockRange blocks(size_t slice) const { return {blocks_[slice], blocks_[slice + 1]}; }
  Span floats(size_t slice) const { return {floats_[slice], floats_[slice + 1]}; }
  const std::vector<size_t>& block_cuts() const { return blocks_; }
  // In floats: slice i is from cuts()[i] to cuts()[i + 1].
  const std::vector<size_t>& cuts() const { return floats_; }

  // The slice of which this member keeps a copy. Requires has_copies().
  size_t copied_by(size_t member) const { return (member + slices() - 1) % slices(); }
  // The slice of the worker of that name, if it has one.
  std::optional<size_t> slice_of(int name) const;
  // What that member keeps: its own slice, then the one that it copies.
  std::vector<Span> kept_by(size_t member) const;
  // Of those present, by name, the one that gives the slice: the owner, or who has the copy.
  std::optional<int> holder(size_t slice, std::span<const int> present) const;

  bool operator==(const Ownership&) const = default;

 private:
  std::vector<int> members_, keepers_;
  int replicas_ = 0;
  std::vector<size_t> blocks_, floats_;  // where slices begin, and the end
};

// Of those in the world that serve. One server alone has its copy on the first worker that
// computes. Throws Error for replicas out of range.
Ownership owners_of(const World& world, const ParameterSpace& space, int replicas,
                    std::vector<double> shares = {});

}  // namespace starling
