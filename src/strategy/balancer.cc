#include "strategy/balancer.h"

#include <algorithm>
#include <utility>

#include "strategy/balance.h"
#include "strategy/merge_cache.h"

namespace starling {

std::span<const ShardRange> Balancer::begin(int64_t view, const std::vector<bool>& computes) {
  const std::optional<std::vector<int>> next = std::exchange(next_, std::nullopt);
  if (next && view == view_) {
    placement_ = place_workers(*next, computes);
    steps_ = std::min(2 * steps_, kMostSteps);
    ++changes_;
  } else {
    placement_ = place_workers(shards_, computes);
    steps_ = kLeastSteps;
  }
  view_ = view;
  computes_ = computes;
  counts_.clear();
  for (size_t rank = 0; rank < placement_.size(); ++rank) {
    if (computes_[rank]) counts_.push_back(placement_[rank].size());
  }
  medians_.assign(placement_.size(), 0);
  measured_.clear();
  measured_.reserve(kMostSteps * placement_.size());
  return placement_;
}

bool Balancer::add(const StepSize& step, std::span<const double> seconds) {
  for (size_t rank = 0; rank < placement_.size(); ++rank) {
    const ShardRange range = placement_[rank];
    if (!computes_[rank]) continue;
    const double of_worker = seconds[static_cast<size_t>(range.begin)];
    measured_.push_back(seconds_per_shard(of_worker, step, range, shards_));
  }
  const MeasuredSteps measured{measured_, counts_.size()};
  if (measured.steps() < steps_) return false;
  const std::vector<double> medians = median_seconds(measured);
  for (size_t rank = 0, i = 0; rank < placement_.size(); ++rank)
    medians_[rank] = computes_[rank] ? medians[i++] : 0;
  if (balance_ == Balance::kSpeed) next_ = better_balance(counts_, measured);
  if (!next_) steps_ = std::max(steps_ - 1, kLeastSteps);
  measured_.clear();
  return true;
}

}  // namespace starling
