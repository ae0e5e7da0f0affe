#include "train/lease_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "optim/update.h"
#include "starling/error.h"

namespace starling {

LeaseStep::LeaseStep(Executor& executor, TrainState& state, const Optimizer& optimizer,
                     NonFinite policy)
    : executor_(executor),
      state_(state),
      optimizer_(optimizer),
      policy_(policy),
      merges_(executor, {{0, executor.options().shards}}),
      block_sums_(state.space.blocks().size()) {}

std::vector<double> LeaseWork::Result::told_sums() const {
  std::vector<double> told = {sums->loss};
  told.insert(told.end(), sums->metrics.begin(), sums->metrics.end());
  told.push_back(static_cast<double>(sums->samples));
  told.push_back(static_cast<double>(skipped));
  return told;
}

LeaseWork::Result LeaseStep::run(const Work& work, const RowReader& reader) {
  executor_.refresh_updated();
  plan_ = &merges_.of(StepSize::of_batch(static_cast<int64_t>(work.samples.size()))).plan;
  const bool early = !early_.buckets.empty() && !optimizer_.clip_norm;
  executor_.gradient({.samples = work.samples, .reader = &reader, .epoch = work.epoch},
                     {0, executor_.options().shards}, early ? this : nullptr);
  const size_t blocks = block_sums_.size();
  const auto lanes = static_cast<size_t>(executor_.lanes().count());
  if (!early) {
    executor_.lanes().run([&](int lane) {
      const auto l = static_cast<size_t>(lane);
      sum(l * blocks / lanes, (l + 1) * blocks / lanes);
    });
  }
  const Sums& sums = executor_.board().total();
  const double norm = global_norm(state_.space, block_sums_);
  const bool finite = std::isfinite(sums.loss) && std::isfinite(norm);
  if (!finite && policy_ == NonFinite::kStop) {
    throw run_error(fmt::format("in epoch {} the {} is not finite", work.epoch + 1,
                                std::isfinite(sums.loss) ? "gradient" : "loss"),
                    "lower the learning rate, clip gradients (clip_norm = 1.0), look at the data, "
                    "or set non_finite = \"skip\"; --resume goes on from the last checkpoint");
  }
  if (finite && optimizer_.clip_norm && norm > *optimizer_.clip_norm)
    scale(clip_scale(norm, *optimizer_.clip_norm));
  if (before_.size() == kTakenBackMost) before_.pop_front();
  before_.emplace_back(state_.statistics.begin(), state_.statistics.end());
  if (finite && state_.moments.size() > 0)
    executor_.board().commit_moments(state_.moments, state_.statistics.span());
  return {.change = gradient(),
          .sums = &sums,
          .finite = finite,
          .computed = executor_.board().sample_hash()};
}

void LeaseStep::take_back(size_t gradients) {
  for (; gradients > 0; --gradients) {
    std::copy(before_.back().begin(), before_.back().end(), state_.statistics.begin());
    before_.pop_back();
  }
}

std::span<float> LeaseStep::gradient() const {
  return {executor_.gradients()[0], state_.space.total_floats()};
}

void LeaseStep::complete(size_t bucket) {
  const Bucket& done = early_.buckets[bucket];
  sum(done.first_block, done.first_block + done.block_count);
  early_.tell(gradient(), bucket);
}

void LeaseStep::sum(size_t first, size_t last) {
  const std::span<float* const> parts = executor_.gradients();
  std::array<const float*, kMaxShards> at;
  for (size_t b = first; b < last; ++b) {
    const Block& block = state_.space.blocks()[b];
    float* const into = parts[0] + block.offset;
    for (size_t i = 0; i < parts.size(); ++i) at[i] = parts[i] + block.offset;
    if (parts.size() > 1) plan_->sum({at.data(), parts.size()}, block.size, into);
    block_sums_[b] = block_square_sum(into, block.size);
  }
}

void LeaseStep::scale(float factor) {
  for (float& value : gradient()) value *= factor;
}

}  // namespace starling
