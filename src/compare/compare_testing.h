// Comparisons that were never run, for tests: a plan by hand, and made-up results in which one
// strategy is better than the next.
#pragma once

#include <fmt/format.h>

#include <cmath>

#include "compare/plan.h"
#include "compare/summary.h"

namespace starling {

inline ComparePlan made_up_plan(const std::string& strategies, std::vector<Condition> conditions,
                                uint64_t seeds) {
  ComparePlan plan;
  plan.job.name = "made <up> & \"quoted\"";
  plan.target = "made_up.toml";
  plan.budget = "6 epochs of 60000 samples";
  plan.conditions = std::move(conditions);
  for (uint64_t seed = 1; seed <= seeds; ++seed) plan.seeds.push_back(seed);
  const std::vector<ComparedStrategy> all = parse_strategies(strategies);
  for (const ComparedStrategy& strategy : all) {
    if (strategy.name == "single")
      plan.entries.push_back({strategy, std::nullopt, {}, "", "runs/single"});
  }
  for (size_t c = 0; c < plan.conditions.size(); ++c) {
    for (const ComparedStrategy& strategy : all) {
      if (strategy.name == "single") continue;
      plan.entries.push_back(
          {strategy,
           c,
           {},
           "",
           fmt::format("runs/{}/{}", plan.conditions[c].slug(), strategy.slug())});
    }
  }
  for (const uint64_t seed : plan.seeds) {
    for (size_t entry = 0; entry < plan.entries.size(); ++entry)
      plan.trials.push_back({entry, seed});
  }
  return plan;
}

// Learns the quicker the smaller `slowness` is; seeds differ a little.
inline TrialResult made_up_result(double slowness, uint64_t seed, double bytes_per_epoch) {
  TrialResult result;
  const double luck = 0.01 * static_cast<double>(seed % 3);
  for (int epoch = 1; epoch <= 6; ++epoch) {
    result.points.push_back({.seconds = epoch * slowness * (1 + luck),
                             .samples = epoch * 60000.0,
                             .bytes = epoch * bytes_per_epoch,
                             .accuracy = 0.9 - 0.3 * std::exp(-0.7 * epoch) + 0.1 * luck});
  }
  const double all = result.last().seconds;
  result.times = {.input = 0.02 * all,
                  .compute = 0.6 * all,
                  .communication = 0.28 * all,
                  .waiting = 0.1 * all,
                  .hidden = 0.15 * all};
  result.wall_s = all + 1;
  result.test_accuracy = 0.88;
  return result;
}

inline Outcomes made_up_outcomes(const ComparePlan& plan) {
  Outcomes outcomes;
  for (const Trial& trial : plan.trials) {
    const double place = static_cast<double>(trial.entry);
    TrialResult result = made_up_result(2 + place, trial.seed, place * 25e6);
    const std::string& name = plan.entries[trial.entry].strategy.name;
    if (name == "parameter_server") {
      for (uint64_t missed = 0; missed < 20; ++missed)
        result.staleness.push_back(1000 / (missed + 1));
    }
    if (name == "local_sgd") result.disagreement = 0.01 + 0.001 * place;
    outcomes[{trial.entry, trial.seed}] = {std::move(result), ""};
  }
  return outcomes;
}

}  // namespace starling
