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
  std::vector<KeptSlice::Part> parts;
  for (const Push& push : pushes) {
    count += push.samples.size();
    if (!push.finite) continue;
    const auto missed = static_cast<double>(version - push.version);
    const auto own = static_cast<double>(push.samples.size());
    parts.push_back({push.worker, own / (1 + rules.damping * missed)});
    damped += parts.back().weight;
    whole += own;
  }
  const double share = static_cast<double>(count) / static_cast<double>(rules.batch);
  double factor = is_adaptive(optimizer.kind) ? std::sqrt(share) : share;
  if (whole > 0) factor *= damped / whole;
  if (has_momentum(optimizer.kind)) {
    const LoweredMomentum lowered = lower_momentum(optimizer.momentum, rules.apart);
    optimizer.momentum = lowered.momentum;
    factor *= lowered.rate_factor;
  }
  const double scheduled = rate(rules.optimizer, samples / rules.batch, rules.total_steps);
  return {UpdateSettings(optimizer, factor * scheduled, version), std::move(parts)};
}

}  // namespace starling
