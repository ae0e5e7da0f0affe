#include "train/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "optim/update.h"
#include "starling/error.h"

namespace starling {

LocalSteps::LocalSteps(Executor& executor, TrainState& state, const Optimizer& optimizer,
                       NonFinite policy, const Options& options)
    : executor_(executor),
      state_(state),
      optimizer_(optimizer),
      policy_(policy),
      options_(options),
      step_(executor, state, optimizer, policy) {}

size_t LocalSteps::steps_of(size_t samples) const {
  const double each = static_cast<double>(options_.batch) / static_cast<double>(options_.parts);
  const double steps = std::round(static_cast<double>(samples) / std::max(1.0, each));
  return std::clamp<size_t>(static_cast<size_t>(steps), 1, samples);
}

void LocalSteps::prepare(size_t samples) {
  const size_t steps = steps_of(samples);
  step_.prepare(samples / steps);
  if (samples % steps != 0) step_.prepare(samples / steps + 1);
}

void LocalSteps::keep() {
  const size_t floats = state_.space.total_floats();
  before_.statistics.assign(state_.statistics.begin(), state_.statistics.end());
  before_.optimizer.resize(state_.optimizer.kinds());
  for (size_t kind = 0; kind < before_.optimizer.size(); ++kind) {
    float* const values = state_.optimizer.at(kind, 0);
    before_.optimizer[kind].assign(values, values + floats);
    if (options_.resets) std::fill_n(values, floats, 0.0f);
  }
}

void LocalSteps::take_back() {
  std::copy(before_.statistics.begin(), before_.statistics.end(), state_.statistics.begin());
  for (size_t kind = 0; kind < before_.optimizer.size(); ++kind)
    std::copy(before_.optimizer[kind].begin(), before_.optimizer[kind].end(),
              state_.optimizer.at(kind, 0));
}

void LocalSteps::update(std::span<float> weights, std::span<const float> gradient, double rate,
                        uint64_t step) {
  const UpdateSettings settings(optimizer_, rate, step);
  const size_t blocks = state_.space.blocks().size();
  const auto lanes = static_cast<size_t>(executor_.lanes().count());
  executor_.lanes().run([&](int lane) {
    const auto l = static_cast<size_t>(lane);
    for (size_t b = l * blocks / lanes; b < (l + 1) * blocks / lanes; ++b) {
      const Block& block = state_.space.blocks()[b];
      std::array<float*, kMaxStates> states{};
      for (size_t kind = 0; kind < state_.optimizer.kinds(); ++kind)
        states[kind] = state_.optimizer.at(kind, block.offset);
      const float* const at = gradient.data() + block.offset;
      static_cast<void>(update_block(settings, state_.space.slices()[block.slice].weight_decay,
                                     {&at, 1}, block.size, weights.data() + block.offset,
                                     states.data()));
    }
  });
}

bool LocalSteps::make_step(const LeaseWork::Work& work, const RowReader& reader, double rate,
                           uint64_t step, std::span<float> weights) {
  const LeaseWork::Result result = step_.run(work, reader);
  computed_.add(result.computed);
  sums_.metrics.resize(result.sums->metrics.size());
  if (!result.finite) return false;
  sums_ += *result.sums;
  update(weights, result.change, rate, step);
  return true;
}

LeaseWork::Result LocalSteps::run(const LeaseWork::Work& work, const RowReader& reader) {
  keep();
  uint64_t skipped = 0;
  const size_t samples = work.samples.size(), steps = steps_of(samples);
  const uint64_t scheduled = work.trained / options_.batch;
  const uint64_t done = options_.step + scheduled - options_.trained / options_.batch;
  sums_ = {};
  computed_ = {};
  for (size_t i = 0; i < steps; ++i) {
    const auto at = [&](size_t step) {
      return work.samples.begin() + static_cast<std::ptrdiff_t>(step * samples / steps);
    };
    const LeaseWork::Work own{.samples = {at(i), at(i + 1)}, .epoch = work.epoch};
    const double scheduled_rate = rate(optimizer_, scheduled + i, options_.total_steps);
    // Moments that begin anew are those of so many steps.
    const uint64_t step = options_.resets ? i : done + i;
    bool counts = true;
    options_.compute(
        [&] { counts = make_step(own, reader, scheduled_rate, step, work.seat.weights); });
    if (!counts) ++skipped;
    if (!options_.goes_on()) {
      take_back();
      return {.change = {}, .sums = &sums_, .finite = false, .skipped = 0, .outdone = true};
    }
  }
  const bool finite = std::all_of(work.seat.weights.begin(), work.seat.weights.end(),
                                  [](float weight) { return std::isfinite(weight); });
  if (!finite && policy_ == NonFinite::kStop) {
    throw run_error(
        fmt::format("in epoch {} a weight is not finite", work.epoch + 1),
        "lower the learning rate, clip gradients (clip_norm = 1.0), or set non_finite = "
        "\"skip\"; --resume goes on from the last checkpoint");
  }
  if (!finite) take_back();
  return {
      .change = {}, .sums = &sums_, .finite = finite, .skipped = skipped, .computed = computed_};
}

}  // namespace starling
