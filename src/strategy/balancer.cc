#include "strategy/balancer.h"

#include <algorithm>
#include <utility>

#include "strategy/balance.h"
#include "strategy/merge_cache.h"

namespace starling {

std::span<const ShardRange> Balancer::begin(int64_t view, int workers) {
  const std::optional<std::vector<int>> next = std::exchange(next_, std::nullopt);
  if (next && view == view_) {
    placement_ = ranges_of(*next);
    steps_ = std::min(2 * steps_, kMostSteps);
    ++changes_;
  } else {
    placement_ = place_workers(shards_, workers);
    steps_ = kLeastSteps;
  }
  view_ = view;
  counts_.clear();
  for (const ShardRange& range : placement_) counts_.push_back(range.size());
  medians_.assign(placement_.size(), 0);
  measured_.clear();
  measured_.reserve(kMostSteps * placement_.size());
  return placement_;
}

bool Balancer::add(const StepSize& step, std::span<const double> seconds) {
  for (const ShardRange& range : placement_) {
    const double of_worker = seconds[static_cast<size_t>(range.begin)];
    measured_.push_back(seconds_per_shard(of_worker, step, range, shards_));
  }
  const MeasuredSteps measured{measured_, placement_.size()};
  if (measured.steps() < steps_) return false;
  medians_ = median_seconds(measured);
  if (balance_ == Balance::kSpeed) next_ = better_balance(counts_, measured);
  if (!next_) steps_ = std::max(steps_ - 1, kLeastSteps);
  measured_.clear();
  return true;
}

}  // namespace starling
