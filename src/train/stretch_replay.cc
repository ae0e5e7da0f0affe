#include "train/stretch_replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace starling {

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
      const std::span<const float> weights = slice_.weights();
      worker(order.worker)
          .leases.push_back({.samples = order.samples,
                             .weights = {weights.begin(), weights.end()},
                             .gradient = {},
                             .statistics = {},
                             .sums = {}});
      break;
    }
    case Order::Kind::kApply:
      apply(order);
      break;
    case Order::Kind::kDrop:
      worker(order.worker).leases.pop_front();
      break;
    case Order::Kind::kMeet:
    case Order::Kind::kAdd:  // are in no record
    case Order::Kind::kOver:
      break;
  }
  if (options_.obeyed) options_.obeyed(order);
}

void StretchReplay::apply(Order& order) {
  for (Push& push : order.pushes) {
    Worker& pushed = worker(push.worker);
    if (!pushed.leases.front().computed) compute(pushed);
    push.sums = pushed.leases.front().sums;
    push.computed = pushed.leases.front().hash;
  }
  const UpdatePlan plan = plan_update(options_.rules, order.pushes, version_, samples_);
  std::vector<KeptSlice::Part> parts;
  for (const UpdatePlan::Part& part : plan.parts)
    parts.push_back({worker(part.worker).leases.front().gradient.data(), part.weight});
  // With the arithmetic of lanes, which servers have too.
  if (!parts.empty())
    executor_.run_alone([&] { slice_.apply(parts, plan.settings, state_.optimizer.kinds()); });
  ++version_;
  for (const Push& push : order.pushes) {
    samples_ += push.samples.size();
    Worker& pushed = worker(push.worker);
    pushed.statistics.swap(pushed.leases.front().statistics);
    pushed.leases.pop_front();
  }
}

void StretchReplay::compute_some() {
  std::vector<Worker*> ready;
  for (auto& [name, one] : workers_) {
    if (!one.leases.empty() && !one.leases.back().computed) ready.push_back(&one);
  }
  while (!ready.empty() && draw(2) == 0) {
    const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(draw(ready.size()));
    compute(**chosen);
    if ((*chosen)->leases.back().computed) ready.erase(chosen);
  }
}

void StretchReplay::compute(Worker& worker) {
  const std::vector<float>* before = &worker.statistics;
  auto lease = worker.leases.begin();
  for (; lease->computed; ++lease) before = &lease->statistics;
  std::copy(lease->weights.begin(), lease->weights.end(), state_.weights.begin());
  std::copy(before->begin(), before->end(), state_.statistics.begin());
  const LeaseStep::Result result = step_.run(
      {.samples = options_.samples_at(lease->samples), .epoch = epoch_}, *options_.reader);
  lease->statistics.assign(state_.statistics.begin(), state_.statistics.end());
  lease->sums = result.told_sums();
  lease->hash = result.computed.digest();
  lease->gradient.assign(result.change.begin(), result.change.end());
  lease->computed = true;
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
