#include "compare/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/texts.h"

namespace starling {
namespace {

// Columns are as wide as what they mostly hold.
std::string table_line(const std::string& strategy, size_t width, const std::string& accuracy,
                       const std::string& goal, const std::string& rate, const std::string& bytes) {
  return fmt::format("  {:{}}  {:>16}  {:>26}  {:>10}  {:>12}\n", strategy, width, accuracy, goal,
                     rate, bytes);
}

std::string condition_text(const ConditionSummary& condition) {
  std::vector<std::string> labels;
  size_t width = 8;
  for (const StrategySummary& one : condition.strategies) {
    labels.push_back(one.label + (condition.is_reference(one) ? " (reference)" : ""));
    width = std::max(width, labels.back().size());
  }
  std::string text = fmt::format("\n{}\n", condition.condition.label());
  text += table_line("strategy", width, "accuracy", "time to the goal", "samples/s", "per sample");
  for (size_t i = 0; i < labels.size(); ++i) {
    const StrategySummary& one = condition.strategies[i];
    if (one.seeds.empty()) {
      text += fmt::format("  {:{}}  {:>16}\n", labels[i], width,
                          one.failures.empty() ? "to come" : "failed");
    } else if (one.over_budget > 0) {
      text += fmt::format("  {:{}}  {}\n", labels[i], width, one.budget_text());
    } else {
      text += table_line(labels[i], width, percent_text(one.accuracy), one.goal_text(),
                         count_text(one.samples_per_s.mean), sent_text(one.bytes_per_sample.mean));
    }
  }
  const Recommendation& advice = condition.recommendation;
  if (advice.strategy.empty()) return text + fmt::format("  {}\n", advice.reason);
  return text + fmt::format("  use {}: {}\n  {}: {}\n", advice.strategy, advice.result,
                            sure_text(advice.sure), advice.reason);
}

}  // namespace

std::string sure_text(bool sure) { return sure ? "sure" : "not sure"; }

std::string summary_to_text(const Summary& summary) {
  std::string text;
  if (!summary.goal_reason.empty())
    text += fmt::format("goal           {}: {}\n", percent_text(summary.goal), summary.goal_reason);
  for (const ConditionSummary& condition : summary.conditions) text += condition_text(condition);
  if (summary.conditions.size() < 2) return text;
  text += fmt::format("\nunder all conditions: {}", summary.overall.text);
  if (!summary.overall.strategy.empty())
    text += fmt::format(" ({})", sure_text(summary.overall.sure));
  return text + "\n";
}

}  // namespace starling
