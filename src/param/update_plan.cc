#include "param/update_plan.h"

#include <algorithm>
#include <cmath>

namespace starling {
namespace {

bool is_adaptive(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}
bool has_momentum(OptimizerKind kind) {
  return kind == OptimizerKind::kMomentum || kind == OptimizerKind::kNesterov;
}

// The update as that part of a usual one, but for the rate.
void count_as(double part, const Optimizer& optimizer, UpdateSettings& settings) {
  if (has_momentum(optimizer.kind)) {
    const double kept = std::pow(optimizer.momentum, part);
    // What so many small updates add to the velocity is what one usual update adds.
    const double added = (1 - kept) / (1 - optimizer.momentum);
    settings.momentum = static_cast<float>(kept);
    settings.gradient_scale = static_cast<float>(added);
    settings.decay_rate = added;
    settings.set_weight_decay(optimizer.weight_decay);
  } else if (is_adaptive(optimizer.kind)) {
    const double beta1 = std::pow(optimizer.beta1, part), beta2 = std::pow(optimizer.beta2, part);
    settings.beta1 = static_cast<float>(beta1);
    settings.beta1_rest = static_cast<float>(1 - beta1);
    settings.beta2 = static_cast<float>(beta2);
    settings.beta2_rest = static_cast<float>(1 - beta2);
  }
}

}  // namespace

LoweredMomentum lower_momentum(double momentum, size_t workers) {
  if (workers == 1) return {momentum, 1};
  const double rest = 1 - momentum;
  const double lowered = std::min(1.0, static_cast<double>(workers) * rest);
  return {1 - lowered, lowered / rest};
}

UpdatePlan plan_update(const UpdateRules& rules, std::span<const Push> pushes, uint64_t version,
                       uint64_t samples) {
  Optimizer optimizer = rules.optimizer;
  uint64_t count = 0;
  double damped = 0, whole = 0;
  std::vector<UpdatePlan::Part> parts;
  for (const Push& push : pushes) {
    count += push.samples.size();
    if (!push.finite) continue;
    const auto missed = static_cast<double>(version - push.version);
    const auto own = static_cast<double>(push.samples.size());
    parts.push_back({push.worker, own / (1 + rules.damping * missed)});
    damped += parts.back().weight;
    whole += own;
  }
  if (rules.whole) {
    UpdateSettings settings(optimizer, optimizer.learning_rate, version);
    settings.decay_rate = 0;  // weights have decayed in the steps that were handed in
    settings.set_weight_decay(0);
    return {settings, std::move(parts)};
  }
  double factor = rules.usual / static_cast<double>(rules.batch);
  if (is_adaptive(optimizer.kind)) factor = std::sqrt(factor);
  if (whole > 0) factor *= damped / whole;
  if (has_momentum(optimizer.kind)) {
    const LoweredMomentum lowered = lower_momentum(optimizer.momentum, rules.apart);
    optimizer.momentum = lowered.momentum;
    factor *= lowered.rate_factor;
  }
  const double part = static_cast<double>(count) / rules.usual;
  const double scheduled = rate(rules.optimizer, samples / rules.batch, rules.total_steps);
  UpdateSettings settings(optimizer, part * factor * scheduled, version);
  count_as(part, optimizer, settings);
  return {settings, std::move(parts)};
}

}  // namespace starling
