#include "train/stretch_replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/isa.h"
#include "base/random.h"

namespace starling {

std::string numbers_text() { return fmt::format("{} {}", version(), isa_name()); }

void mean_of(std::span<const std::span<const float>> parts, std::span<float> mean) {
  for (size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const std::span<const float> part : parts) sum += static_cast<double>(part[i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(parts.size()));
  }
}

// The record says what was not finite: nothing ends a replay.
StretchReplay::StretchReplay(Executor& executor, TrainState& state, const Options& options)
    : executor_(executor),
      state_(state),
      options_(options),
      step_(executor, state, options.rules.optimizer, NonFinite::kSkip),
      slice_(state.space, 0, state.space.blocks().size(), state.weights.span(),
             [&state](size_t kind, size_t offset) { return state.optimizer.at(kind, offset); }),
      first_statistics_(state.statistics.begin(), state.statistics.end()),
      version_(state.step),
      samples_(options.samples) {}

void StretchReplay::run(const RecordedStretch& stretch) {
  epoch_ = stretch.epoch;
  for (const Order& order : stretch.log) {
    compute_some();
    obey(order);
  }
  const std::span<const float> weights = slice_.weights();
  std::copy(weights.begin(), weights.end(), state_.weights.begin());
  std::vector<std::span<const float>> parts;
  for (const int name : stretch.averaged) parts.emplace_back(worker(name).statistics);
  mean_of(parts, state_.statistics.span());
}

void StretchReplay::obey(Order order) {
  switch (order.kind) {
    case Order::Kind::kLend: {
      Worker& lent = worker(order.worker);
      lent.samples = order.samples;
      lent.weights.assign(slice_.weights().begin(), slice_.weights().end());
      lent.computed = false;
      break;
    }
    case Order::Kind::kApply:
      apply(order);
      break;
    case Order::Kind::kDrop:
      worker(order.worker).samples = {};
      break;
    case Order::Kind::kOver:
      break;
  }
  if (options_.obeyed) options_.obeyed(order);
}

void StretchReplay::apply(Order& order) {
  for (Push& push : order.pushes) {
    Worker& pushed = worker(push.worker);
    if (!pushed.computed) compute(push.worker, pushed);
    push.sums = pushed.sums;
    pushed.statistics.swap(pushed.statistics_after);
    pushed.samples = {};
  }
  const UpdatePlan plan = plan_update(options_.rules, order.pushes, version_, samples_);
  std::vector<KeptSlice::Part> parts;
  for (const UpdatePlan::Part& part : plan.parts)
    parts.push_back({slice_.room_for(part.worker).data(), part.weight});
  // With the arithmetic of lanes, which servers have too.
  if (!parts.empty())
    executor_.run_alone([&] { slice_.apply(parts, plan.settings, state_.optimizer.kinds()); });
  ++version_;
  for (const Push& push : order.pushes) samples_ += push.samples.size();
}

void StretchReplay::compute_some() {
  std::vector<int> names;
  for (const auto& [name, one] : workers_) {
    if (one.samples.size() > 0 && !one.computed) names.push_back(name);
  }
  while (!names.empty() && draw(2) == 0) {
    const auto chosen = names.begin() + static_cast<std::ptrdiff_t>(draw(names.size()));
    compute(*chosen, worker(*chosen));
    names.erase(chosen);
  }
}

void StretchReplay::compute(int name, Worker& worker) {
  std::copy(worker.weights.begin(), worker.weights.end(), state_.weights.begin());
  std::copy(worker.statistics.begin(), worker.statistics.end(), state_.statistics.begin());
  const LeaseStep::Result result =
      step_.run({options_.samples_at(worker.samples), epoch_}, *options_.reader);
  step_.commit();
  worker.statistics_after.assign(state_.statistics.begin(), state_.statistics.end());
  worker.sums = {result.sums->loss};
  worker.sums.insert(worker.sums.end(), result.sums->metrics.begin(), result.sums->metrics.end());
  std::copy(result.gradient.begin(), result.gradient.end(), slice_.room_for(name).begin());
  worker.computed = true;
}

uint64_t StretchReplay::draw(uint64_t below) {
  return mix64(options_.timing_seed + mix64(version_ + mix64(++draws_))) % below;
}

StretchReplay::Worker& StretchReplay::worker(int name) {
  Worker& found = workers_[name];
  if (found.statistics.empty()) found.statistics = first_statistics_;
  return found;
}

}  // namespace starling
