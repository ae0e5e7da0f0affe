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
    stretches_ = std::min(2 * stretches_, kMostStretches);
    ++changes_;
  } else {
    placement_ = place_workers(shards_, computes);
    stretches_ = kLeastStretches;
  }
  view_ = view;
  computes_ = computes;
  counts_.clear();
  for (size_t rank = 0; rank < placement_.size(); ++rank) {
    if (computes_[rank]) counts_.push_back(placement_[rank].size());
  }
  medians_.assign(placement_.size(), 0);
  measured_.clear();
  measured_.reserve(kMostStretches * placement_.size());
  begin_stretch();
  return placement_;
}

void Balancer::begin_stretch() {
  stretch_.assign(counts_.size(), 0);
  stretch_steps_ = 0;
  stretch_seconds_ = 0;
}

bool Balancer::add(const StepSize& step, std::span<const double> seconds) {
  double slowest = 0;
  for (size_t rank = 0, i = 0; rank < placement_.size(); ++rank) {
    if (!computes_[rank]) continue;
    const ShardRange range = placement_[rank];
    const double of_worker = seconds[static_cast<size_t>(range.begin)];
    stretch_[i++] += seconds_per_shard(of_worker, step, range, shards_);
    slowest = std::max(slowest, of_worker);
  }
  ++stretch_steps_;
  stretch_seconds_ += slowest;
  if (stretch_seconds_ < kStretchSeconds) return false;
  for (const double sum : stretch_) measured_.push_back(sum / static_cast<double>(stretch_steps_));
  begin_stretch();
  return look();
}

bool Balancer::look() {
  const MeasuredSteps measured{measured_, counts_.size()};
  if (measured.steps() < stretches_) return false;
  const std::vector<double> medians = median_seconds(measured);
  for (size_t rank = 0, i = 0; rank < placement_.size(); ++rank)
    medians_[rank] = computes_[rank] ? medians[i++] : 0;
  if (balance_ == Balance::kSpeed) next_ = better_balance(counts_, measured);
  if (!next_) stretches_ = std::max(stretches_ - 1, kLeastStretches);
  measured_.clear();
  return true;
}

}  // namespace starling
