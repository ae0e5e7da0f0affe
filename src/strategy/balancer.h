// Balancer: follows how fast the workers of a view are, and says when shards should lie otherwise
// (balance.h). Every worker has one and adds the same figures at the same steps, so all come to the
// same placement without asking each other. A new view begins evenly: who is new has not seen what
// the others have.
//
// Steps are measured by stretches of a hundredth of a second or more, since a neighbour on the same
// machine disturbs for that long: steps of a millisecond would all tell of the same disturbance.
// Every change makes the time to the next look twice as long, and every look that finds nothing to
// change makes it a little shorter: where speeds waver, it soon waits until they show what lasts.
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/shards.h"
#include "starling/cluster.h"

namespace starling {

class Balancer {
 public:
  // A stretch is one step or more, and so many seconds of computing or more.
  static constexpr double kStretchSeconds = 0.01;
  // Stretches from one look at the figures to the next.
  static constexpr uint64_t kLeastStretches = 8, kMostStretches = 256;

  Balancer(Balance balance, int shards) : balance_(balance), shards_(shards) {}

  // The shards of each worker for a strategy in this view: those that is_due() is about, or else as
  // many for each that computes. Figures are gathered anew.
  std::span<const ShardRange> begin(int64_t view, const std::vector<bool>& computes);

  // After a step; `seconds` are those that each worker took for its shards, at the first of them.
  // Returns whether it was time to look at the figures.
  bool add(const StepSize& step, std::span<const double> seconds);

  // What a shard takes each worker, as of the last look; 0 for one that does not compute.
  std::span<const double> shard_seconds() const { return medians_; }
  // Whether the last look found a better placement: for begin() in the same view.
  bool is_due() const { return next_.has_value(); }

  std::span<const ShardRange> placement() const { return placement_; }
  uint64_t changes() const { return changes_; }

 private:
  void begin_stretch();
  bool look();

  const Balance balance_;
  const int shards_;
  int64_t view_ = 0;
  std::vector<ShardRange> placement_;
  std::vector<bool> computes_;
  std::vector<int> counts_;       // of those that compute
  std::vector<double> stretch_;   // of those: the sums of the steps of the stretch under way
  uint64_t stretch_steps_ = 0;    // so many
  double stretch_seconds_ = 0;    // by the slowest worker of each
  std::vector<double> measured_;  // of those that compute, since the last look, by stretches
  std::vector<double> medians_;
  uint64_t stretches_ = kLeastStretches;  // to be measured before the next look
  std::optional<std::vector<int>> next_;
  uint64_t changes_ = 0;
};

}  // namespace starling
