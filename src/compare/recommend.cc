#include "compare/recommend.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/texts.h"

namespace starling {
namespace {

size_t all_seeds(const Candidate& one) { return one.seeds + one.failed; }

bool reaches_always(const Candidate& one) {
  return one.seeds > 0 && one.failed == 0 && one.reached == one.seeds;
}

// More seeds than there were, for a second try.
size_t more_seeds(const Candidate& one) {
  const size_t seeds = all_seeds(one);
  return seeds < 3 ? 3 : 2 * seeds - 1;
}

// The best first, by time if they reach the goal, else by accuracy.
using Ranking = std::vector<const Candidate*>;

Ranking rank(Ranking some, bool by_time) {
  std::stable_sort(some.begin(), some.end(), [&](const Candidate* a, const Candidate* b) {
    if (by_time) return a->time_to_goal.mean < b->time_to_goal.mean;
    const bool a_failed = a->failed > 0, b_failed = b->failed > 0;
    return a_failed != b_failed ? b_failed : a->accuracy.mean > b->accuracy.mean;
  });
  return some;
}

bool is_surely_better(const Candidate& a, const Candidate& b, bool by_time) {
  return by_time ? is_surely_less(a.time_to_goal, b.time_to_goal)
                 : is_surely_less(b.accuracy, a.accuracy);
}

std::string by_time_text(const Ranking& ranking, double goal) {
  const Estimate& best = ranking[0]->time_to_goal;
  std::string text = fmt::format("reaches {} in {}", percent_text(goal), seconds_text(best));
  if (ranking.size() < 2) return text + "; no other reaches it with every seed";
  const Estimate& next = ranking[1]->time_to_goal;
  const double times = best.mean > 0 ? next.mean / best.mean : 1;
  return text + fmt::format(", {} {} ({})",
                            times < 1.05 ? "as soon as"
                                         : fmt::format("{:.{}f} times sooner than", times,
                                                       times < 10 ? 1 : 0),
                            ranking[1]->label, seconds_text(next));
}

std::string by_accuracy_text(const Ranking& ranking, double goal) {
  std::string text = fmt::format("none reaches {} with every seed; it comes furthest: {}",
                                 percent_text(goal), percent_text(ranking[0]->accuracy));
  if (ranking.size() < 2) return text;
  return text +
         fmt::format(", against {} of {}", percent_text(ranking[1]->accuracy), ranking[1]->label);
}

std::string failed_text(const Candidate& one) {
  return fmt::format("{} of its {} seeds failed", one.failed, all_seeds(one));
}

// What keeps the best from being sure because of this one; empty: nothing does.
std::string doubt(const Candidate& best, const Candidate& other, bool by_time) {
  if (is_surely_better(best, other, by_time)) return "";
  const std::string rerun = fmt::format("run again with --seeds {}", more_seeds(best));
  if (by_time && !reaches_always(other))
    return fmt::format("{} reaches it with {} of {} seeds; {}", other.label, other.reached,
                       all_seeds(other), rerun);
  if (other.seeds < 2) return fmt::format("{} has one seed only; {}", other.label, rerun);
  return fmt::format("its interval and that of {} overlap; {}", other.label, rerun);
}

// Whether it is sure, and why. `others`: all that might be better, the next first.
void judge(const Candidate& best, const Ranking& others, bool by_time, bool complete,
           Recommendation& found) {
  if (!complete) {
    found.reason = "trials are still to come";
  } else if (best.failed > 0) {
    found.reason = failed_text(best) + "; the same command tries them again";
  } else if (best.seeds < 2) {
    found.reason = fmt::format("one seed says nothing about chance; run again with --seeds {}",
                               more_seeds(best));
  } else if (others.empty()) {
    found.sure = by_time;
    found.reason = by_time ? fmt::format("all of its {} seeds reached the goal", best.seeds)
                           : "there is nothing to compare it with";
  } else {
    // Not only the next: one further behind may have a wide interval.
    for (const Candidate* const other : others) {
      found.reason = doubt(best, *other, by_time);
      if (!found.reason.empty()) return;
    }
    found.sure = true;
    found.reason = "its interval overlaps that of no other";
  }
}

std::string nothing_text(const std::vector<Candidate>& candidates, bool complete) {
  const auto is_over = [](const Candidate& one) { return one.over_budget && !one.reference; };
  if (std::any_of(candidates.begin(), candidates.end(), is_over))
    return "no strategy has an epoch within the budget: give it more time";
  return complete ? "no trial came to its end" : "nothing has been measured yet";
}

}  // namespace

Recommendation recommend(const std::vector<Candidate>& candidates, double goal, bool complete) {
  Ranking there, reaching, sometimes;
  for (const Candidate& one : candidates) {
    if (one.reference || one.over_budget || one.seeds == 0) continue;
    there.push_back(&one);
    if (reaches_always(one)) {
      reaching.push_back(&one);
    } else if (one.reached > 0) {
      sometimes.push_back(&one);
    }
  }
  Recommendation found;
  found.measured =
      !candidates.empty() && std::all_of(candidates.begin(), candidates.end(),
                                         [](const Candidate& one) { return all_seeds(one) > 0; });
  if (there.empty()) {
    found.reason = nothing_text(candidates, complete);
    return found;
  }
  found.reaches_goal = !reaching.empty();
  const Ranking ranking = rank(found.reaches_goal ? reaching : there, found.reaches_goal);
  const Candidate& best = *ranking[0];
  found.strategy = best.label;
  if (ranking.size() > 1) found.next = ranking[1]->label;
  found.result = found.reaches_goal ? by_time_text(ranking, goal) : by_accuracy_text(ranking, goal);
  if (found.reaches_goal && best.in_first_epoch)
    found.result += "; that is the end of its first epoch, so a higher --goal would tell more";
  Ranking others(ranking.begin() + 1, ranking.end());
  if (found.reaches_goal) others.insert(others.end(), sometimes.begin(), sometimes.end());
  judge(best, others, found.reaches_goal, complete, found);
  return found;
}

OverallRecommendation recommend_overall(const std::vector<Recommendation>& conditions) {
  OverallRecommendation overall;
  const auto all = [&](const auto& holds) {
    return std::all_of(conditions.begin(), conditions.end(), holds);
  };
  if (all([](const Recommendation& one) { return one.strategy.empty(); })) {
    overall.text = conditions.empty() ? "nothing has been measured yet" : conditions.front().reason;
  } else if (!all([](const Recommendation& one) { return one.measured; })) {
    overall.text = "not all conditions have been measured";
  } else if (!all([&](const auto& one) { return one.strategy == conditions.front().strategy; })) {
    overall.text = "it depends on the condition";
  } else {
    overall.strategy = overall.text = conditions.front().strategy;
    overall.sure = all([](const Recommendation& one) { return one.sure; });
  }
  return overall;
}

}  // namespace starling
