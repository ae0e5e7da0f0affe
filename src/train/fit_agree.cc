// How workers that train apart come to the same state between two stretches: they get the weights
// that servers have, or the mean of their own; the mean of optimizers and statistics that each had
// for itself; and learn what any of them wants.
#include <algorithm>

#include "strategy/param_service.h"
#include "train/fit.h"
#include "train/optimizer_transfer.h"
#include "train/stretch_replay.h"

namespace starling {
namespace {

// Of what is averaged, at a time.
constexpr size_t kAveragedFloats = size_t{1} << 18;

}  // namespace

// All get the weights as the servers have them, and learn what any of them wants.
void FitLoop::share_trained() {
  World& world = impl_.world();
  const bool change = world.wants_change();
  const Wishes own{.stop = options_.should_stop && options_.should_stop(),
                   .change = change,
                   .wait = change && static_cast<uint64_t>(world.computing()) <
                                         impl_.options.strategy.min_workers,
                   .save = is_save_due_apart(impl_.summary.steps)};
  const std::vector<float> statistics(impl_.state.statistics.span().begin(),
                                      impl_.state.statistics.span().end());
  const std::vector<std::vector<float>> optimizers = local_optimizers();
  if (own_weights_meet() && own_weights_.now.empty())  // it has not begun
    own_weights_.now.assign(impl_.state.weights.begin(), impl_.state.weights.end());
  std::vector<ServedLoad> loads;  // by rank
  world.agree("sharing what was trained", [&] {
    spread_slices(world, *strategy_->ownership(), impl_.state.weights.span());
    if (!impl_.state.outer.empty())
      spread_slices(world, *strategy_->ownership(), impl_.state.outer.span());
    if (own_weights_meet()) average(own_weights_.now, impl_.state.weights.span());
    wishes_ = {};
    for (const Wishes& one : world.gather("wishes", std::span(&own, 1))) wishes_.add(one);
    average_statistics(statistics);
    average_optimizers(optimizers);
    if (is_synchronous_first()) spread_optimizer();
    loads = world.gather("loads", std::span<const ServedLoad>(&served_, 1));
  });
  balance_slices(loads);
  impl_.weights_changed();
  impl_.any_executor();
}

void FitLoop::balance_slices(const std::vector<ServedLoad>& by_rank) {
  const World& world = impl_.world();
  if (slice_shares_.view != world.view() || by_rank.size() != strategy_members_.size()) return;
  const Ownership& owners = *strategy_->ownership();
  std::vector<ServedLoad> loads;
  for (const int name : owners.members())
    loads.push_back(by_rank[static_cast<size_t>(world.rank_of(name))]);
  std::vector<double> shares = shares_by_load(owners, loads);
  if (shares.empty()) return;
  slice_shares_.shares = std::move(shares);
  ++slice_shares_.changes;
}

// Of those that have computed: each has seen the moments of its own gradients.
void FitLoop::average_statistics(const std::vector<float>& own) {
  averaged_ = impl_.world().computing_names();
  if (!own.empty()) average(own, impl_.state.statistics.span());
}

// The mean of what those who compute have.
void FitLoop::average(std::span<const float> own, std::span<float> mean) {
  World& world = impl_.world();
  for (size_t begin = 0; begin < own.size(); begin += kAveragedFloats) {
    const size_t count = std::min(kAveragedFloats, own.size() - begin);
    const std::vector<float> all = world.gather("what is averaged", own.subspan(begin, count));
    std::vector<std::span<const float>> parts;
    for (const int name : world.computing_names())
      parts.push_back(
          std::span(all).subspan(static_cast<size_t>(world.rank_of(name)) * count, count));
    mean_of(parts, mean.subspan(begin, count));
  }
}

// By kind; none where servers have it.
std::vector<std::vector<float>> FitLoop::local_optimizers() const {
  std::vector<std::vector<float>> own;
  if (!makes_own_steps()) return own;
  const OptimizerState& state = impl_.state.optimizer;
  for (size_t kind = 0; kind < state.kinds(); ++kind) {
    const float* const values = state.at(kind, 0);
    own.emplace_back(values, values + impl_.state.space.total_floats());
  }
  return own;
}

// So that all are the same between stretches.
void FitLoop::average_optimizers(const std::vector<std::vector<float>>& own) {
  for (size_t kind = 0; kind < own.size(); ++kind)
    average(own[kind], {impl_.state.optimizer.at(kind, 0), own[kind].size()});
}

// So that all have all of it, for the steps that they will make by themselves.
void FitLoop::spread_optimizer() {
  OptimizerState& state = impl_.state.optimizer;
  for (size_t kind = 0; kind < state.kinds(); ++kind) {
    spread_slices(impl_.world(), *strategy_->ownership(),
                  {state.at(kind, 0), impl_.state.space.total_floats()});
  }
}

}  // namespace starling
