// The part of FitLoop that says what must be the same: on all workers, and when a run goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/sha256.h"
#include "data/digest.h"
#include "train/fit.h"
#include "train/numbers.h"

namespace starling {

// What must be the same when a run goes on, because it is part of its numbers.
Json FitLoop::job_fingerprint() const {
  Json job;
  job["seed"] = impl_.options.seed;
  job["batch"] = options_.batch;
  job["accumulate"] = options_.accumulate;
  job["shards"] = impl_.shards_of(options_.batch);
  job["micro_batch"] = executor_.options().micro_batch;
  job["precision"] = precision_name(impl_.options.precision);
  job["samples"] = train_.size();
  job["shuffle"] = options_.shuffle;
  job["optimizer"] = optimizer_name(impl_.options.optimizer.kind);
  return job;
}

std::string FitLoop::job_text() const {
  const World& world = impl_.world();
  if (world.workers() == 1) return {};  // nobody to compare with
  const StrategyOptions& strategy = impl_.options.strategy;
  std::string text;
  for (const auto& [name, value] : numbers()) text += fmt::format("{} {}\n", name, value);
  text += fmt::format("workers {}\nlanes {}\nbalance {}\n", world.workers(),
                      executor_.lanes().count(), static_cast<int>(strategy.balance));
  text += fmt::format("strategy {} replicas {} exact {} overlap {} check_every {}\n",
                      strategy.name.empty() ? "all_reduce" : strategy.name, strategy.replicas,
                      strategy.exact, strategy.overlap, strategy.check_every);
  if (trains_apart()) {
    text +=
        fmt::format("consistency {} {} {} partition {} ahead {} damping {} adjust_momentum {}\n",
                    strategy.consistency, strategy.staleness, strategy.backup, strategy.partition,
                    strategy.ahead, strategy.damping, strategy.adjust_momentum);
    text += fmt::format(
        "period {} outer {} local_state {} post_local_after {} tasks {} match {} beta {}\n",
        strategy.period, strategy.outer, strategy.local_state, strategy.post_local_after,
        strategy.tasks, strategy.match, strategy.beta);
  }
  const Json job = job_fingerprint();
  for (const auto& [key, value] : job.items()) text += fmt::format("{} {}\n", key, to_text(value));
  text += fmt::format("epochs {}\nmodel {}\nloss {}\nnon_finite {}\n", options_.epochs,
                      sha256_hex(impl_.model.summary()), impl_.options.loss->kind(),
                      static_cast<int>(impl_.options.non_finite));
  for (const MetricPtr& metric : impl_.options.metrics)
    text += fmt::format("metric {}\n", metric->kind());
  const Optimizer& o = impl_.options.optimizer;
  text += fmt::format(
      "learning_rate {}\nmomentum {}\nbetas {} {}\nepsilon {}\nweight_decay {}\nclip_value {}\n"
      "clip_norm {}\n",
      o.learning_rate, o.momentum, o.beta1, o.beta2, o.epsilon, o.weight_decay,
      o.clip_value.value_or(0), o.clip_norm.value_or(0));
  std::string decays;
  for (const Slice& slice : impl_.state.space.slices()) {
    if (slice.weight_decay) decays += fmt::format("{} {}\n", slice.name, *slice.weight_decay);
  }
  text += fmt::format("weight_decay of layers {}\n", sha256_hex(decays));
  text += fmt::format("schedule {} {} {} {} {} {}\n", static_cast<int>(o.schedule.kind),
                      o.schedule.warmup_steps, o.schedule.every,
                      fmt::join(o.schedule.milestones, ","), o.schedule.gamma, o.schedule.floor);
  return text + data_text_;
}

// Once: a new view must not wait for data that are slow to read.
std::string FitLoop::data_text() const {
  const World& world = impl_.world();
  if (world.workers() == 1 && !world.survives()) return {};
  return fmt::format("training data {}\nvalidation data {}\n", data::digest(train_),
                     options_.validation ? data::digest(options_.validation) : "none");
}

std::string FitLoop::state_text() const {
  const World& world = impl_.world();
  if (world.workers() == 1) return {};
  std::string text = fmt::format("step {}\n", impl_.summary.steps);
  if (!world.shares_memory()) text += fmt::format("weights {}\n", trainer_.weights_sha256());
  return text;
}

}  // namespace starling
