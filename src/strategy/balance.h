// How many shards each worker gets when they are not equally fast. Pure functions of what was
// measured: workers that have the same figures decide alike, without a word.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/shards.h"

namespace starling {

// What a shard of average size takes a worker that took `seconds` for those of `range`; 0 if they
// have no samples.
double seconds_per_shard(double seconds, const StepSize& step, ShardRange range, int shards);

// The number of shards of each worker, at least one, so that the last is done as soon as whole
// shards allow: later than if shards could be cut at will by no more than the slowest worker's time
// for one. Requires figures above 0, and as many shards as workers or more.
std::vector<int> balance_shards(std::span<const double> shard_seconds, int shards);

// When the slowest worker is done with its shards.
double slowest_seconds(std::span<const int> counts, std::span<const double> shard_seconds);

// What was measured in some steps, one after another: a row for each, with what a shard took each
// worker.
struct MeasuredSteps {
  std::span<const double> rows;
  size_t workers;

  size_t steps() const { return rows.size() / workers; }
  std::span<const double> row(size_t step) const { return rows.subspan(step * workers, workers); }
};

// By worker: the median, so that what disturbs a few steps does not count.
std::vector<double> median_seconds(const MeasuredSteps& measured);

// Other numbers than `counts`, if with them the steps would have been shorter by a part that is
// worth it, in the first half of the steps as in the second: noise shall not move shards to and
// fro. None for figures that say nothing. Requires two steps or more.
std::optional<std::vector<int>> better_balance(std::span<const int> counts,
                                               const MeasuredSteps& measured);

}  // namespace starling
