// Which strategy to use, why, and how sure that is. A pure rule:
//   1. Of the strategies that reach the goal with every seed, the one that does so in the least
//      time.
//   2. If there is none, the one of the highest accuracy at the end.
// A seed that failed is one that did not reach the goal, and who has such comes after who has none.
// It is sure when its 95% interval over seeds does not touch that of any other, also of those that
// reach the goal with some seeds only. With one seed there are no intervals, so nothing is sure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "compare/estimate.h"

namespace starling {

struct Candidate {
  std::string label;
  size_t seeds = 0;             // trials that came to their end
  size_t failed = 0;            // those that did not
  size_t reached = 0;           // of `seeds`, how many reached the goal
  Estimate accuracy;            // at the end, 0 … 1
  Estimate time_to_goal;        // seconds, of those that reached it
  bool in_first_epoch = false;  // it was reached there by all of them, so its end counts
  bool over_budget = false;     // with some seed no epoch was within it: can't be chosen
  bool reference = false;       // is shown for comparison, and can't be chosen
};

struct Recommendation {
  std::string strategy;  // empty: nothing has been measured yet
  std::string next;      // the one that comes nearest; empty: none does
  bool reaches_goal = false;
  bool sure = false;
  bool measured = false;  // each strategy has a trial behind it
  std::string
      result;  // "reaches 88.0% in 41 s ± 3 s, 2.1 times sooner than all_reduce (86 s ± 5 s)"
  std::string reason;  // why it is sure, or not, and what would help
};

// `complete`: no trial of this condition is still to come.
Recommendation recommend(const std::vector<Candidate>& candidates, double goal, bool complete);

// Of several conditions: the one that is right for all of them, or that there is none.
struct OverallRecommendation {
  std::string strategy;  // empty: it depends on the condition, or is not known yet
  bool sure = false;     // for each of them
  std::string text;
};
OverallRecommendation recommend_overall(const std::vector<Recommendation>& conditions);

}  // namespace starling
