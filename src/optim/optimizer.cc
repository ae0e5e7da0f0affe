#include "starling/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "starling/error.h"

namespace starling {
namespace {

constexpr std::array<std::string_view, 5> kOptimizerNames = {"sgd", "momentum", "nesterov", "adam",
                                                             "adamw"};
constexpr std::array<std::string_view, 3> kScheduleNames = {"constant", "step", "cosine"};

// Bounds that keep every number away from the ends of f32, in which the update is computed.
constexpr double kSmallest = 1e-30;
constexpr double kLargest = 1e30;

size_t index_of(std::span<const std::string_view> names, std::string_view name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw input_error(fmt::format("\"{}\" is not {}", name, what),
                      fmt::format("use one of: {}", fmt::join(names, ", ")));
  }
  return static_cast<size_t>(found - names.begin());
}

// Also refuses NaN.
void check(bool good, std::string_view field, double value, std::string_view range) {
  if (!good) {
    throw input_error(fmt::format("{} = {} is out of range", field, value),
                      fmt::format("{} must be {}", field, range));
  }
}

void check_positive(std::string_view field, double value) {
  check(value >= kSmallest && value <= kLargest, field, value,
        "greater than 0 (from 1e-30 to 1e30)");
}

void check_fraction(std::string_view field, double value) {
  check(value >= 0 && value < 1, field, value, "at least 0 and less than 1");
}

void validate(const Schedule& schedule) {
  if (schedule.kind == ScheduleKind::kCosine) {
    check(schedule.floor >= 0 && schedule.floor <= 1, "floor", schedule.floor, "from 0 to 1");
  }
  if (schedule.kind != ScheduleKind::kStep) return;
  check(schedule.gamma > 0 && schedule.gamma <= 1, "gamma", schedule.gamma,
        "greater than 0 and at most 1");
  if ((schedule.every > 0) == !schedule.milestones.empty()) {
    throw input_error("a step schedule needs either every or milestones",
                      "set every to a number of steps, or milestones to a list of steps");
  }
  const auto& marks = schedule.milestones;
  const auto wrong = std::adjacent_find(marks.begin(), marks.end(), std::greater_equal<>());
  if (wrong != marks.end()) {
    throw input_error(fmt::format("milestones have {} before {}", *wrong, *(wrong + 1)),
                      "list each milestone once, in ascending order");
  }
}

template <class Options>
Optimizer make(OptimizerKind kind, double learning_rate, const Options& options) {
  Optimizer result{.kind = kind,
                   .learning_rate = learning_rate,
                   .weight_decay = options.weight_decay,
                   .schedule = options.schedule,
                   .clip_value = options.clip_value,
                   .clip_norm = options.clip_norm};
  if constexpr (requires { options.momentum; }) result.momentum = options.momentum;
  if constexpr (requires { options.beta1; }) {
    result.beta1 = options.beta1;
    result.beta2 = options.beta2;
    result.epsilon = options.epsilon;
  }
  validate(result);
  return result;
}

Schedule checked(Schedule schedule) {
  validate(schedule);
  return schedule;
}

}  // namespace

Schedule constant(const ConstantOptions& options) {
  return {.kind = ScheduleKind::kConstant, .warmup_steps = options.warmup_steps};
}

Schedule step_decay(const StepDecayOptions& options) {
  return checked({.kind = ScheduleKind::kStep,
                  .warmup_steps = options.warmup_steps,
                  .every = options.every,
                  .milestones = options.milestones,
                  .gamma = options.gamma});
}

Schedule cosine(const CosineOptions& options) {
  return checked({.kind = ScheduleKind::kCosine,
                  .warmup_steps = options.warmup_steps,
                  .floor = options.floor});
}

Optimizer sgd(double learning_rate, const SgdOptions& options) {
  return make(OptimizerKind::kSgd, learning_rate, options);
}
Optimizer momentum(double learning_rate, const MomentumOptions& options) {
  return make(OptimizerKind::kMomentum, learning_rate, options);
}
Optimizer nesterov(double learning_rate, const MomentumOptions& options) {
  return make(OptimizerKind::kNesterov, learning_rate, options);
}
Optimizer adam(double learning_rate, const AdamOptions& options) {
  return make(OptimizerKind::kAdam, learning_rate, options);
}
Optimizer adamw(double learning_rate, const AdamWOptions& options) {
  return make(OptimizerKind::kAdamW, learning_rate, options);
}

void validate(const Optimizer& optimizer) {
  check_positive("learning_rate", optimizer.learning_rate);
  check_fraction("momentum", optimizer.momentum);
  check_fraction("beta1", optimizer.beta1);
  check_fraction("beta2", optimizer.beta2);
  check_positive("epsilon", optimizer.epsilon);
  check(optimizer.weight_decay >= 0 && optimizer.weight_decay <= kLargest, "weight_decay",
        optimizer.weight_decay, "at least 0 (and at most 1e30)");
  if (optimizer.clip_value) check_positive("clip_value", *optimizer.clip_value);
  if (optimizer.clip_norm) check_positive("clip_norm", *optimizer.clip_norm);
  if (optimizer.clip_value && optimizer.clip_norm) {
    throw input_error("clip_value and clip_norm are both set", "choose one of the two");
  }
  validate(optimizer.schedule);
}

Optimizer optimizer_from_name(std::string_view name, double learning_rate) {
  switch (static_cast<OptimizerKind>(index_of(kOptimizerNames, name, "an optimizer"))) {
    case OptimizerKind::kSgd:
      return sgd(learning_rate);
    case OptimizerKind::kMomentum:
      return momentum(learning_rate);
    case OptimizerKind::kNesterov:
      return nesterov(learning_rate);
    case OptimizerKind::kAdam:
      return adam(learning_rate);
    case OptimizerKind::kAdamW:
      break;
  }
  return adamw(learning_rate);
}

std::string_view optimizer_name(OptimizerKind kind) {
  return kOptimizerNames[static_cast<size_t>(kind)];
}
std::span<const std::string_view> optimizer_names() { return kOptimizerNames; }

ScheduleKind schedule_from_name(std::string_view name) {
  return static_cast<ScheduleKind>(index_of(kScheduleNames, name, "a schedule"));
}
std::string_view schedule_name(ScheduleKind kind) {
  return kScheduleNames[static_cast<size_t>(kind)];
}
std::span<const std::string_view> schedule_names() { return kScheduleNames; }

}  // namespace starling
