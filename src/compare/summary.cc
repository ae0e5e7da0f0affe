#include "compare/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/texts.h"

namespace starling {
namespace {

constexpr double kBelowReference = 0.005;  // the goal, if none is given: half a point below it

template <typename Value>
Estimate over_seeds(const std::vector<SeedSummary>& seeds, const Value& value) {
  std::vector<double> values;
  for (const SeedSummary& seed : seeds) {
    if (const std::optional<double> one = value(seed)) values.push_back(*one);
  }
  return estimate(values);
}

double mean_staleness(const std::vector<uint64_t>& counts) {
  double sum = 0, all = 0;
  for (size_t missed = 0; missed < counts.size(); ++missed) {
    sum += static_cast<double>(missed) * static_cast<double>(counts[missed]);
    all += static_cast<double>(counts[missed]);
  }
  return all > 0 ? sum / all : 0;
}

std::vector<double> staleness_shares(const std::vector<SeedSummary>& seeds) {
  std::vector<double> shares;
  double all = 0;
  for (const SeedSummary& seed : seeds) {
    const std::vector<uint64_t>& counts = seed.result.staleness;
    shares.resize(std::max(shares.size(), counts.size()));
    for (size_t missed = 0; missed < counts.size(); ++missed) {
      shares[missed] += static_cast<double>(counts[missed]);
      all += static_cast<double>(counts[missed]);
    }
  }
  if (all == 0) return {};
  for (double& share : shares) share /= all;
  return shares;
}

std::vector<CurvePoint> curve_of(std::vector<SeedSummary> seeds) {
  std::erase_if(seeds, [](const SeedSummary& seed) { return seed.result.over_budget; });
  size_t epochs = seeds.empty() ? 0 : seeds.front().result.points.size();
  for (const SeedSummary& seed : seeds) epochs = std::min(epochs, seed.result.points.size());
  std::vector<CurvePoint> curve(epochs);
  const double count = static_cast<double>(seeds.size());
  for (size_t i = 0; i < epochs; ++i) {
    for (const SeedSummary& seed : seeds) {
      const TrialPoint& point = seed.result.points[i];
      curve[i].seconds += point.seconds / count;
      curve[i].samples += point.samples / count;
      curve[i].bytes += point.bytes / count;
    }
    curve[i].accuracy = over_seeds(seeds, [&](const SeedSummary& seed) -> std::optional<double> {
      return seed.result.points[i].accuracy;
    });
  }
  return curve;
}

TimeSplit mean_times(const std::vector<SeedSummary>& seeds) {
  TimeSplit mean;
  const double count = static_cast<double>(std::max<size_t>(1, seeds.size()));
  for (const SeedSummary& seed : seeds) {
    const TimeSplit& times = seed.result.times;
    mean.input += times.input / count;
    mean.compute += times.compute / count;
    mean.communication += times.communication / count;
    mean.waiting += times.waiting / count;
    mean.hidden += times.hidden / count;
  }
  return mean;
}

// Everything but what depends on the goal.
StrategySummary summarize_entry(const ComparePlan& plan, size_t index, const Outcomes& outcomes) {
  const CompareEntry& entry = plan.entries[index];
  StrategySummary summary{.label = entry.strategy.label(),
                          .folder = entry.folder,
                          .reference = plan.is_reference(entry),
                          .expected = plan.seeds.size()};
  for (const uint64_t seed : plan.seeds) {
    const auto found = outcomes.find({index, seed});
    if (found == outcomes.end()) continue;
    if (found->second.result) {
      summary.seeds.push_back({seed, *found->second.result, {}});
      if (found->second.result->over_budget) ++summary.over_budget;
    } else {
      summary.failures.push_back(fmt::format("seed {}: {}", seed, found->second.failure));
    }
  }
  using Number = std::optional<double>;
  const auto over = [&](const auto& value) { return over_seeds(summary.seeds, value); };
  summary.accuracy = over([](const SeedSummary& s) -> Number {
    if (s.result.over_budget) return std::nullopt;
    return s.result.last().accuracy;
  });
  summary.samples_per_s = over([](const SeedSummary& s) -> Number {
    return s.result.last().samples / std::max(s.result.last().seconds, 1e-9);
  });
  summary.bytes_per_sample = over([](const SeedSummary& s) -> Number {
    return s.result.last().bytes / std::max(s.result.last().samples, 1.0);
  });
  summary.exposed = over([](const SeedSummary& s) -> Number {
    const TimeSplit& times = s.result.times;
    return (times.communication + times.waiting) / std::max(times.all(), 1e-9);
  });
  summary.staleness = over([](const SeedSummary& s) -> Number {
    if (s.result.staleness.empty()) return std::nullopt;
    return mean_staleness(s.result.staleness);
  });
  summary.disagreement = over([](const SeedSummary& s) { return s.result.disagreement; });
  summary.times = mean_times(summary.seeds);
  summary.staleness_shares = staleness_shares(summary.seeds);
  summary.curve = curve_of(summary.seeds);
  return summary;
}

void measure_goal(StrategySummary& summary, double goal) {
  for (SeedSummary& seed : summary.seeds) {
    seed.goal = seed.result.reaches(goal);
    if (seed.goal) ++summary.reached;
  }
  const auto over = [&](double TrialPoint::*member) {
    return over_seeds(summary.seeds, [&](const SeedSummary& seed) -> std::optional<double> {
      if (!seed.goal) return std::nullopt;
      return (*seed.goal).*member;
    });
  };
  summary.time_to_goal = over(&TrialPoint::seconds);
  summary.samples_to_goal = over(&TrialPoint::samples);
  summary.bytes_to_goal = over(&TrialPoint::bytes);
}

// As it was given, or half a point below what one process reaches, or else the best.
void choose_goal(const ComparePlan& plan, const std::vector<StrategySummary>& entries,
                 Summary& summary) {
  if (plan.goal) {
    summary.goal = *plan.goal;
    summary.goal_reason = "given by --goal";
    return;
  }
  const StrategySummary* chosen = nullptr;
  for (const StrategySummary& entry : entries) {
    if (!entry.accuracy.is_there() || entry.over_budget > 0) continue;
    const bool is_better = chosen == nullptr || entry.reference ||
                           (!chosen->reference && entry.accuracy.mean > chosen->accuracy.mean);
    if (is_better) chosen = &entry;
  }
  if (chosen == nullptr) return;
  // Tenths of a point, so that it can be said.
  summary.goal =
      std::max(0.0, std::floor((chosen->accuracy.mean - kBelowReference) * 1000 + 1e-6) / 1000);
  summary.goal_reason = fmt::format("half a point below what {} has at the end ({})", chosen->label,
                                    percent_text(chosen->accuracy));
}

Candidate candidate_of(const StrategySummary& summary, const ConditionSummary& condition) {
  const auto in_first_epoch = [](const SeedSummary& seed) {
    return seed.goal && seed.result.points.front().seconds >= seed.goal->seconds;
  };
  return {.label = summary.label,
          .seeds = summary.seeds.size(),
          .failed = summary.failures.size(),
          .reached = summary.reached,
          .accuracy = summary.accuracy,
          .time_to_goal = summary.time_to_goal,
          .in_first_epoch = std::all_of(summary.seeds.begin(), summary.seeds.end(), in_first_epoch),
          .over_budget = summary.over_budget > 0,
          .reference = condition.is_reference(summary)};
}

}  // namespace

std::string StrategySummary::goal_text() const {
  if (!time_to_goal.is_there()) return "not reached";
  const size_t all = seeds.size() + failures.size();
  std::string text = seconds_text(time_to_goal);
  if (reached < all) text += fmt::format(" ({} of {} seeds)", reached, all);
  return text;
}

std::string StrategySummary::budget_text() const {
  if (over_budget == 0) return "";
  std::string text = "its first epoch took longer than the budget";
  if (over_budget < seeds.size())
    text += fmt::format(" ({} of {} seeds)", over_budget, seeds.size());
  return text;
}

Summary summarize(const ComparePlan& plan, const Outcomes& outcomes) {
  Summary summary{.job = plan.job.name,
                  .target = plan.target,
                  .budget = plan.budget,
                  .seeds = plan.seeds,
                  .trials = plan.trials.size(),
                  .notes = plan.notes};
  for (const auto& [trial, outcome] : outcomes) ++(outcome.result ? summary.done : summary.failed);
  std::vector<StrategySummary> entries;
  for (size_t i = 0; i < plan.entries.size(); ++i)
    entries.push_back(summarize_entry(plan, i, outcomes));
  choose_goal(plan, entries, summary);
  for (StrategySummary& entry : entries) measure_goal(entry, summary.goal);
  std::vector<Recommendation> recommendations;
  for (size_t c = 0; c < plan.conditions.size(); ++c) {
    ConditionSummary& condition = summary.conditions.emplace_back();
    condition.condition = plan.conditions[c];
    std::vector<Candidate> candidates;
    bool complete = true;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (plan.entries[i].condition.value_or(c) != c) continue;
      condition.strategies.push_back(entries[i]);
      candidates.push_back(candidate_of(entries[i], condition));
      complete =
          complete && entries[i].seeds.size() + entries[i].failures.size() == entries[i].expected;
    }
    condition.recommendation = recommend(candidates, summary.goal, complete);
    recommendations.push_back(condition.recommendation);
  }
  summary.overall = recommend_overall(recommendations);
  return summary;
}

}  // namespace starling
