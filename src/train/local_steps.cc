#include "train/local_steps.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "optim/update.h"

namespace starling {

LocalSteps::LocalSteps(Executor& executor, TrainState& state, const Optimizer& optimizer,
                       NonFinite policy, const Options& options)
    : executor_(executor),
      state_(state),
      optimizer_(optimizer),
      options_(options),
      step_(executor, state, optimizer, policy),
      base_(state.space.total_floats()) {}

size_t LocalSteps::steps_of(size_t samples) const {
  const double each = static_cast<double>(options_.batch) / static_cast<double>(options_.workers);
  const double steps = std::round(static_cast<double>(samples) / std::max(1.0, each));
  return std::clamp<size_t>(static_cast<size_t>(steps), 1, samples);
}

void LocalSteps::prepare(size_t samples) {
  const size_t steps = steps_of(samples);
  step_.prepare(samples / steps);
  if (samples % steps != 0) step_.prepare(samples / steps + 1);
}

void LocalSteps::for_blocks(FunctionRef<void(size_t first, size_t last)> work) {
  const size_t blocks = state_.space.blocks().size();
  const auto lanes = static_cast<size_t>(executor_.lanes().count());
  executor_.lanes().run([&](int lane) {
    const auto l = static_cast<size_t>(lane);
    work(l * blocks / lanes, (l + 1) * blocks / lanes);
  });
}

void LocalSteps::agreed(std::span<const float> weights) {
  if (change_.empty()) return;
  double apart = 0, length = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double own = static_cast<double>(base_[i]) - static_cast<double>(change_[i]);
    const double agreed = weights[i];
    apart += (agreed - own) * (agreed - own);
    length += agreed * agreed;
  }
  change_ = {};
  if (!(length > 0) || !std::isfinite(apart)) return;
  disagreement_.sum += std::sqrt(apart / length);
  ++disagreement_.count;
}

void LocalSteps::begin(const Seat& seat) {
  agreed(seat.weights);
  std::copy(seat.weights.begin(), seat.weights.end(), base_.begin());
  before_.statistics.assign(state_.statistics.begin(), state_.statistics.end());
  before_.optimizer.resize(state_.optimizer.kinds());
  for (size_t kind = 0; kind < before_.optimizer.size(); ++kind) {
    float* const values = state_.optimizer.at(kind, 0);
    before_.optimizer[kind].assign(values, values + base_.size());
    if (options_.resets) std::fill_n(values, base_.size(), 0.0f);
  }
}

void LocalSteps::take_back(size_t leases) {
  if (leases == 0) return;
  std::copy(before_.statistics.begin(), before_.statistics.end(), state_.statistics.begin());
  for (size_t kind = 0; kind < before_.optimizer.size(); ++kind)
    std::copy(before_.optimizer[kind].begin(), before_.optimizer[kind].end(),
              state_.optimizer.at(kind, 0));
}

void LocalSteps::update(std::span<float> weights, std::span<const float> gradient, double rate,
                        uint64_t step) {
  const UpdateSettings settings(optimizer_, rate, step);
  for_blocks([&](size_t first, size_t last) {
    for (size_t b = first; b < last; ++b) {
      const Block& block = state_.space.blocks()[b];
      std::array<float*, kMaxStates> states{};
      for (size_t kind = 0; kind < state_.optimizer.kinds(); ++kind)
        states[kind] = state_.optimizer.at(kind, block.offset);
      static_cast<void>(update_block(settings, state_.space.slices()[block.slice].decay,
                                     gradient.data() + block.offset, block.size,
                                     weights.data() + block.offset, states.data()));
    }
  });
}

LeaseWork::Result LocalSteps::run(const Work& work, const RowReader& reader) {
  begin(work.seat);
  const size_t samples = work.samples.size(), steps = steps_of(samples);
  const uint64_t first = work.trained / options_.batch;
  sums_ = {};
  for (size_t i = 0; i < steps; ++i) {
    const auto at = [&](size_t step) {
      return work.samples.begin() + static_cast<std::ptrdiff_t>(step * samples / steps);
    };
    const Result result = step_.run({.samples = {at(i), at(i + 1)}, .epoch = work.epoch}, reader);
    sums_.samples += result.sums->samples;
    if (!result.finite) continue;  // what was said of the policy: it is skipped
    sums_.loss += result.sums->loss;
    sums_.metrics.resize(result.sums->metrics.size());
    for (size_t m = 0; m < sums_.metrics.size(); ++m) sums_.metrics[m] += result.sums->metrics[m];
    // Moments that begin anew are those of so many steps.
    const uint64_t step = first + i;
    update(work.seat.weights, result.change, rate(optimizer_, step, options_.total_steps),
           options_.resets ? i : step);
  }
  const std::span<float> change = work.seat.gradient;
  bool finite = true;
  for (size_t i = 0; i < change.size(); ++i) {
    change[i] = base_[i] - work.seat.weights[i];
    finite = finite && std::isfinite(change[i]);
  }
  change_ = change;
  return {change, &sums_, finite};
}

}  // namespace starling
