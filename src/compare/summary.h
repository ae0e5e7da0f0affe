// Summary: what the trials so far say: figures of each strategy under each condition, with means
// and intervals over seeds, the goal, and the recommendations. It is all that compare.json and the
// page are made of. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/estimate.h"
#include "compare/plan.h"
#include "compare/recommend.h"
#include "compare/trial_result.h"

namespace starling {

// By entry and seed. A trial that is not here is still to come.
using Outcomes = std::map<std::pair<size_t, uint64_t>, TrialOutcome>;

// The end of an epoch, over seeds: the mean place, and the accuracy there.
struct CurvePoint {
  double seconds = 0, samples = 0, bytes = 0;
  Estimate accuracy;
};

struct SeedSummary {
  uint64_t seed = 0;
  TrialResult result;
  std::optional<TrialPoint> goal;  // where it was reached
};

struct StrategySummary {
  std::string label;
  std::string folder;      // of its runs
  bool reference = false;  // one process, shown for comparison
  size_t expected = 0;     // seeds that there will be
  std::vector<SeedSummary> seeds;
  std::vector<std::string> failures;
  size_t reached = 0;      // seeds that reached the goal
  size_t over_budget = 0;  // seeds whose first epoch took longer than the budget

  Estimate accuracy;  // at the end of the budget
  Estimate time_to_goal, samples_to_goal, bytes_to_goal;
  Estimate samples_per_s, bytes_per_sample;
  Estimate exposed;    // part of training time that went to communication and waiting
  Estimate staleness;  // in the mean over gradients
  Estimate disagreement;
  TimeSplit times;                       // mean over seeds
  std::vector<double> staleness_shares;  // of gradients, by the updates that they had missed
  std::vector<CurvePoint> curve;         // of epochs that all seeds have within the budget

  // "41.2 s ± 3.1 (2 of 3 seeds)", if there are seeds that did not reach it; "not reached".
  std::string goal_text() const;
  // Why accuracies are not there, or not all; empty: they are.
  std::string budget_text() const;
};

struct ConditionSummary {
  Condition condition;
  std::vector<StrategySummary> strategies;
  Recommendation recommendation;

  // Whether it is shown here only as what could be: where workers are slow or links are narrow, one
  // process is no choice.
  bool is_reference(const StrategySummary& strategy) const {
    return strategy.reference && !condition.is_plain();
  }
};

struct Summary {
  std::string job;     // its name
  std::string target;  // its file
  std::string budget;
  std::vector<uint64_t> seeds;
  double goal = 0;
  std::string goal_reason;
  size_t trials = 0, done = 0, failed = 0;
  std::vector<ConditionSummary> conditions;
  OverallRecommendation overall;
  std::vector<std::string> notes;
};

Summary summarize(const ComparePlan& plan, const Outcomes& outcomes);

}  // namespace starling
