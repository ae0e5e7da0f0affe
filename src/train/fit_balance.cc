// How FitLoop follows the speed of the workers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "strategy/balance.h"
#include "train/fit.h"

namespace starling {

std::string FitLoop::placement_text() const {
  std::vector<int> counts;
  for (const ShardRange& range : balancer_.placement()) counts.push_back(range.size());
  return fmt::format("shards of each {}", fmt::join(counts, ", "));
}

// What was measured came with the step, so that everybody who has committed it has the same
// figures: also who completed it in another view.
bool FitLoop::balance(const StepSize& size) {
  if (size != full_step_) return false;  // shards of the last one of an epoch are smaller
  const ShardRange own = strategy_->shards();
  const std::span<const double> seconds = step_->shard_seconds();
  if (own.size() > 0) {
    shard_seconds_ += seconds_per_shard(seconds[static_cast<size_t>(own.begin)], size, own,
                                        executor_.options().shards);
    ++full_steps_;
  }
  if (impl_.world().computing() == 1) return false;
  if (!balancer_.add(size, seconds)) return false;
  name_stragglers();
  return balancer_.is_due();
}

void FitLoop::name_stragglers() {
  const std::span<const double> seconds = balancer_.shard_seconds();
  for (const size_t rank :
       straggler_watch_.look(strategy_members_, seconds, impl_.summary.training_seconds)) {
    note(
        fmt::format("worker {} is slow: a shard takes it {:.3g} ms, and most {:.3g} ms; it has {} "
                    "of {} shards{}",
                    strategy_members_[rank], 1e3 * seconds[rank], 1e3 * usual_seconds(seconds),
                    balancer_.placement()[rank].size(), executor_.options().shards,
                    impl_.options.strategy.balance == Balance::kEven
                        ? " (strategy.balance = \"speed\" gives it fewer)"
                        : ""));
  }
}

}  // namespace starling
