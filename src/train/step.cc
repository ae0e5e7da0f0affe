#include "train/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "starling/error.h"

namespace starling {
namespace {

// Below this many floats an update takes less time than waking the lanes.
constexpr size_t kAloneFloats = 32 * 1024;

constexpr const char* kNonFiniteHint =
    "lower the learning rate, clip gradients (clip_norm = 1.0), look at the data, or set "
    "non_finite = \"skip\"; --resume goes on from the last checkpoint";

}  // namespace

TrainStep::TrainStep(Executor& executor, TrainState& state, const Optimizer& optimizer,
                     NonFinite policy)
    : executor_(executor),
      state_(state),
      optimizer_(optimizer),
      policy_(policy),
      block_sums_(state.space.blocks().size()) {}

template <typename Work>
void TrainStep::for_blocks(Work work) {
  const size_t blocks = state_.space.blocks().size();
  if (state_.space.total_floats() < kAloneFloats) {
    executor_.run_alone([&] { work(0, blocks); });
    return;
  }
  const size_t lanes = static_cast<size_t>(executor_.lanes().count());
  executor_.lanes().run([&](int lane) {
    const size_t l = static_cast<size_t>(lane);
    work(l * blocks / lanes, (l + 1) * blocks / lanes);
  });
}

TrainStep::Result TrainStep::run(const BatchRows& batch, double rate) {
  const Sums& sums = executor_.gradient(batch);
  if (!std::isfinite(sums.loss)) {
    if (policy_ == NonFinite::kStop) stop_at_loss(batch);
    return {&sums, false};
  }
  UpdateSettings settings(optimizer_, rate, state_.step);
  std::array<const float*, 1> summed{executor_.first_gradient()};
  std::span<const float* const> gradients = executor_.group_gradients();
  // The whole gradient is looked at before anything changes where that is asked for.
  if (optimizer_.clip_norm || policy_ == NonFinite::kSkip) {
    const double norm = sum_gradients();
    if (!std::isfinite(norm)) {
      if (policy_ == NonFinite::kStop) stop_at_gradient();
      return {&sums, false};
    }
    if (optimizer_.clip_norm) settings.gradient_scale = clip_scale(norm, *optimizer_.clip_norm);
    gradients = summed;
  }
  if (!update(settings, gradients)) {
    sum_gradients();
    stop_at_gradient();
  }
  if (executor_.has_packed())
    executor_.lanes().run([&](int lane) { executor_.refresh_packed(lane); });
  if (state_.moments.size() > 0) {
    state_.moments.commit(executor_.shard_moments(), executor_.shard_rows(),
                          state_.statistics.span());
  }
  ++state_.step;
  return {&sums, true};
}

double TrainStep::sum_gradients() {
  const std::span<const float* const> shards = executor_.group_gradients();
  float* const sum = executor_.first_gradient();
  for_blocks([&](size_t first, size_t last) {
    std::array<const float*, kMaxShards> at;
    for (size_t b = first; b < last; ++b) {
      const Block& block = state_.space.blocks()[b];
      for (size_t i = 0; i < shards.size(); ++i) at[i] = shards[i] + block.offset;
      block_sums_[b] = block_square_sum({at.data(), shards.size()}, block.size, sum + block.offset);
    }
  });
  return global_norm(state_.space, block_sums_);
}

bool TrainStep::update(const UpdateSettings& settings, std::span<const float* const> gradients) {
  std::atomic<bool> finite{true};
  for_blocks([&](size_t first, size_t last) {
    std::array<const float*, kMaxShards> at;
    std::array<float*, kMaxStates> states{};
    for (size_t b = first; b < last; ++b) {
      const Block& block = state_.space.blocks()[b];
      const Slice& slice = state_.space.slices()[block.slice];
      for (size_t i = 0; i < gradients.size(); ++i) at[i] = gradients[i] + block.offset;
      for (size_t i = 0; i < state_.optimizer.size(); ++i)
        states[i] = state_.optimizer[i].data() + block.offset;
      if (!update_block(settings, slice.decay, {at.data(), gradients.size()}, block.size,
                        state_.weights.data() + block.offset, states.data())) {
        finite = false;
      }
    }
  });
  return finite;
}

void TrainStep::stop_at_loss(const BatchRows& batch) {
  const std::string where = executor_.find_non_finite(batch, state_.statistics.data());
  throw run_error(
      fmt::format("step {}: the loss is not finite{}", state_.step + 1,
                  where.empty() ? "" : fmt::format("; the first bad value comes out of {}", where)),
      kNonFiniteHint);
}

void TrainStep::stop_at_gradient() {
  // Slices lie in the order of the backward pass: the first bad one is nearest to where it began.
  const float* const sum = executor_.first_gradient();
  const auto bad = [&](const Slice& slice) {
    return std::any_of(sum + slice.offset, sum + slice.offset + slice.size,
                       [](float g) { return !std::isfinite(g); });
  };
  const std::span<const Slice> slices = state_.space.slices();
  const auto first = std::find_if(slices.begin(), slices.end(), bad);
  throw run_error(fmt::format("step {}: the gradient{} is not finite", state_.step + 1,
                              first == slices.end() ? "" : " of " + first->name),
                  kNonFiniteHint);
}

}  // namespace starling
