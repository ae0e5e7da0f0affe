// Optimizer: how weights follow from gradients. A plain description, made by adam(…), sgd(…) and
// their like, that the trainer carries out in one pass over the weights; formulas are PyTorch's.
//
//   adam(1e-3, {.weight_decay = 0.01, .clip_norm = 1.0, .schedule = cosine({.warmup_steps = 100})})
//
// Weight decay leaves out the parameters whose ParameterSpec says so: by default bias and
// normalisation. Layers may have another than the optimizer's (Layer::with_weight_decay). All
// makers throw Error for a value out of its range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace starling {

// --- schedules: the learning rate as a function of the step
// ---------------------------------------

enum class ScheduleKind { kConstant, kStep, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t warmup_steps = 0;  // the rate rises in equal steps and is whole at step warmup_steps − 1
  uint64_t every = 0;         // kStep: multiply by gamma each time this many steps are done …
  std::vector<uint64_t> milestones = {};  // … or when each of these many are; ascending
  double gamma = 0.1;
  double floor = 0;  // kCosine: the fraction of the learning rate at the end
};

struct ConstantOptions {
  uint64_t warmup_steps = 0;
};
Schedule constant(const ConstantOptions& options = {});

struct StepDecayOptions {
  uint64_t every = 0;  // either this or milestones
  std::vector<uint64_t> milestones = {};
  double gamma = 0.1;
  uint64_t warmup_steps = 0;
};
// Steps are counted from the start of the run, warm-up included.
Schedule step_decay(const StepDecayOptions& options);

struct CosineOptions {
  double floor = 0;
  uint64_t warmup_steps = 0;
};
// Half a cosine from the learning rate, at the end of the warm-up, to floor × that, at total_steps.
Schedule cosine(const CosineOptions& options = {});

// --- optimizers
// -----------------------------------------------------------------------------------

enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

struct Optimizer {
  OptimizerKind kind = OptimizerKind::kAdam;
  double learning_rate = 1e-3;
  double momentum = 0.9;    // kMomentum, kNesterov
  double beta1 = 0.9;       // kAdam, kAdamW
  double beta2 = 0.999;     // kAdam, kAdamW
  double epsilon = 1e-8;    // kAdam, kAdamW
  double weight_decay = 0;  // decoupled for kAdamW, else added to the gradient (L2)
  Schedule schedule = {};
  // At most one of the two: each value of the gradient to ± clip_value, or the whole gradient
  // scaled so that its Euclidean norm is at most clip_norm.
  std::optional<double> clip_value = {};
  std::optional<double> clip_norm = {};
};

struct SgdOptions {
  double weight_decay = 0;
  std::optional<double> clip_value = {};
  std::optional<double> clip_norm = {};
  Schedule schedule = {};
};
Optimizer sgd(double learning_rate, const SgdOptions& options = {});

struct MomentumOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  std::optional<double> clip_value = {};
  std::optional<double> clip_norm = {};
  Schedule schedule = {};
};
Optimizer momentum(double learning_rate, const MomentumOptions& options = {});
Optimizer nesterov(double learning_rate, const MomentumOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::optional<double> clip_value = {};
  std::optional<double> clip_norm = {};
  Schedule schedule = {};
};
Optimizer adam(double learning_rate, const AdamOptions& options = {});

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  std::optional<double> clip_value = {};
  std::optional<double> clip_norm = {};
  Schedule schedule = {};
};
Optimizer adamw(double learning_rate, const AdamWOptions& options = {});

// Throws Error that names the first field out of its range, and the range.
void validate(const Optimizer& optimizer);

// The learning rate of `step`, counted from 0, in a run of `total_steps`, which only the cosine
// asks for. A step beyond the run has the rate of its end.
double rate(const Optimizer& optimizer, uint64_t step, uint64_t total_steps);

// --- names, as job files have them
// ----------------------------------------------------------------

// The optimizer of this name ("sgd", "momentum", "nesterov", "adam", "adamw") with the defaults of
// its maker. Throws Error with all names for another.
Optimizer optimizer_from_name(std::string_view name, double learning_rate = 1e-3);
std::string_view optimizer_name(OptimizerKind kind);
std::span<const std::string_view> optimizer_names();  // in the order of OptimizerKind

// "constant", "step" or "cosine"; throws Error with all names for another.
ScheduleKind schedule_from_name(std::string_view name);
std::string_view schedule_name(ScheduleKind kind);
std::span<const std::string_view> schedule_names();  // in the order of ScheduleKind

}  // namespace starling
