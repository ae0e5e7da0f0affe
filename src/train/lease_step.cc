#include "train/lease_step.h"

#include <fmt/format.h>

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

LeaseStep::Result LeaseStep::run(std::span<const uint64_t> samples, const RowReader& reader,
                                 uint32_t epoch) {
  if (executor_.has_packed())
    executor_.lanes().run([&](int lane) { executor_.refresh_packed(lane); });
  executor_.gradient({.samples = samples, .reader = &reader, .epoch = epoch});
  const Sums& sums = executor_.board().total();
  const double norm = sum(StepSize::of_batch(static_cast<int64_t>(samples.size())));
  finite_ = std::isfinite(sums.loss) && std::isfinite(norm);
  if (!finite_ && policy_ == NonFinite::kStop) {
    throw run_error(fmt::format("after {} updates: the {} is not finite", state_.step,
                                std::isfinite(sums.loss) ? "gradient" : "loss"),
                    "lower the learning rate, clip gradients (clip_norm = 1.0), look at the data, "
                    "or set non_finite = \"skip\"; --resume goes on from the last checkpoint");
  }
  if (finite_ && optimizer_.clip_norm && norm > *optimizer_.clip_norm)
    scale(clip_scale(norm, *optimizer_.clip_norm));
  return {{executor_.gradients()[0], state_.space.total_floats()}, &sums, finite_};
}

void LeaseStep::commit() {
  if (finite_ && state_.moments.size() > 0)
    executor_.board().commit_moments(state_.moments, state_.statistics.span());
}

double LeaseStep::sum(const StepSize& step) {
  const MergePlan& plan = merges_.of(step).plan;
  const std::span<float* const> parts = executor_.gradients();
  const auto lanes = static_cast<size_t>(executor_.lanes().count());
  const std::span<const Block> blocks = state_.space.blocks();
  executor_.lanes().run([&](int lane) {
    const auto l = static_cast<size_t>(lane);
    std::array<const float*, kMaxShards> at;
    for (size_t b = l * blocks.size() / lanes; b < (l + 1) * blocks.size() / lanes; ++b) {
      float* const into = parts[0] + blocks[b].offset;
      for (size_t i = 0; i < parts.size(); ++i) at[i] = parts[i] + blocks[b].offset;
      if (parts.size() > 1) plan.sum({at.data(), parts.size()}, blocks[b].size, into);
      block_sums_[b] = block_square_sum(into, blocks[b].size);
    }
  });
  return global_norm(state_.space, block_sums_);
}

void LeaseStep::scale(float factor) {
  float* const gradient = executor_.gradients()[0];
  for (const Block& block : state_.space.blocks()) {
    for (size_t i = 0; i < block.size; ++i) gradient[block.offset + i] *= factor;
  }
}

}  // namespace starling
