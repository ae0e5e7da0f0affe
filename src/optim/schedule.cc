// The learning rate of a step: a pure function, so that a resumed run and every worker have it.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "starling/optimizer.h"

namespace starling {
namespace {

double decays(const Schedule& schedule, uint64_t step) {
  if (schedule.every > 0) return static_cast<double>(step / schedule.every);
  const auto& marks = schedule.milestones;
  return static_cast<double>(std::upper_bound(marks.begin(), marks.end(), step) - marks.begin());
}

// The fraction of the learning rate at `step` of `total_steps`, warm-up apart.
double fraction(const Schedule& schedule, uint64_t step, uint64_t total_steps) {
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kStep:
      return std::pow(schedule.gamma, decays(schedule, step));
    case ScheduleKind::kCosine:
      break;
  }
  const uint64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return 1;
  const double done = step >= total_steps ? 1
                                          : static_cast<double>(step - warmup) /
                                                static_cast<double>(total_steps - warmup);
  return schedule.floor + (1 - schedule.floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace

double rate(const Optimizer& optimizer, uint64_t step, uint64_t total_steps) {
  const Schedule& schedule = optimizer.schedule;
  double result = optimizer.learning_rate * fraction(schedule, step, total_steps);
  if (step < schedule.warmup_steps) {
    result *= static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  return result;
}

}  // namespace starling
