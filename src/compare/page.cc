#include "compare/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compare/chart.h"
#include "compare/page_cards.h"
#include "compare/page_style.h"
#include "compare/table.h"
#include "compare/texts.h"
#include "observe/markup.h"

namespace starling {
namespace {

std::string swatch(const std::string& style) {
  return fmt::format(
      "<svg width=\"22\" height=\"10\" aria-hidden=\"true\"><line class=\"line {}\" x1=\"1\" "
      "y1=\"5\" x2=\"21\" y2=\"5\"/></svg>",
      style);
}

std::string draw_legend(const ConditionSummary& condition) {
  std::string html = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < condition.strategies.size(); ++i) {
    html += fmt::format("<li>{}{}</li>\n", swatch(series_class(series_of(condition, i))),
                        escaped(condition.strategies[i].label));
  }
  return html + "</ul>\n";
}

std::string table_row(const StrategySummary& strategy, bool best, bool reference) {
  const auto number = [](const Estimate& one, const auto& text) {
    return one.is_there() ? text(one.mean) : std::string("–");
  };
  const std::string goal = strategy.time_to_goal.is_there() ? strategy.goal_text() : "–";
  std::string html = fmt::format("<tr{}><td>{}{}</td>", best ? " class=\"best\"" : "",
                                 escaped(strategy.label), reference ? " (reference)" : "");
  for (const std::string& cell :
       {percent_text(strategy.accuracy), goal, number(strategy.samples_per_s, count_text),
        number(strategy.bytes_per_sample, sent_text),
        number(strategy.exposed, [](double part) { return percent_text(part); }),
        number(strategy.staleness, digits_text),
        number(strategy.disagreement, [](double part) { return percent_text(part); }),
        fmt::format("{} of {}", strategy.seeds.size(), strategy.expected)})
    html += fmt::format("<td>{}</td>", cell);
  return html + "</tr>\n";
}

std::string draw_table(const ConditionSummary& condition) {
  std::string html =
      "<div class=\"card\"><h3>Figures</h3><div class=\"table\"><table>\n<thead><tr>"
      "<th>strategy</th><th>accuracy at the end</th><th>time to the goal</th><th>samples/s</th>"
      "<th>sent per sample</th><th>communi&shy;cation and waiting</th><th>staleness, mean</th>"
      "<th>disagree&shy;ment</th><th>seeds done</th></tr></thead>\n<tbody>\n";
  for (const StrategySummary& strategy : condition.strategies)
    html += table_row(strategy, strategy.label == condition.recommendation.strategy,
                      condition.is_reference(strategy));
  html += "</tbody></table></div>\n";
  for (const StrategySummary& strategy : condition.strategies) {
    if (const std::string over = strategy.budget_text(); !over.empty())
      html += fmt::format("<p class=\"muted\">{}: {}</p>\n", escaped(strategy.label), over);
    for (const std::string& failure : strategy.failures)
      html +=
          fmt::format("<p class=\"muted\">{}, {}</p>\n", escaped(strategy.label), escaped(failure));
  }
  return html + "</div>\n";
}

std::string draw_advice(const Recommendation& one) {
  if (one.strategy.empty())
    return fmt::format("<div class=\"card advice\"><p>{}</p></div>\n", escaped(one.reason));
  return fmt::format(
      "<div class=\"card advice{}\"><p><strong>{}</strong>: {}.</p>\n<p><span "
      "class=\"badge\">{}</span> {}.</p></div>\n",
      one.sure ? " sure" : "", escaped(one.strategy), escaped(one.result), sure_text(one.sure),
      escaped(one.reason));
}

// Where one process is only what could be, it is said what that is.
std::string reference_text(const ConditionSummary& condition, double goal) {
  if (condition.condition.is_plain()) return "";
  for (const StrategySummary& strategy : condition.strategies) {
    if (!strategy.reference || !strategy.accuracy.is_there()) continue;
    return fmt::format(
        "<p class=\"muted\">single is one process on all cores, without that condition, for "
        "reference: {}.</p>\n",
        strategy.time_to_goal.is_there()
            ? fmt::format("{} in {}", percent_text(goal), seconds_text(strategy.time_to_goal))
            : percent_text(strategy.accuracy) + " at the end");
  }
  return "";
}

std::string draw_condition(const ConditionSummary& condition, double goal) {
  std::string html = fmt::format("<section>\n<h2>{}</h2>\n", escaped(condition.condition.label()));
  html += draw_advice(condition.recommendation) + reference_text(condition, goal);
  const auto any = [&](const auto& holds) {
    return std::any_of(condition.strategies.begin(), condition.strategies.end(), holds);
  };
  const bool has_results = any([](const auto& one) { return one.accuracy.is_there(); });
  const bool has_others =
      any([](const auto& one) { return !one.failures.empty() || one.over_budget > 0; });
  if (!has_results) return html + (has_others ? draw_table(condition) : "") + "</section>\n";
  html += draw_legend(condition) + "<div class=\"charts\" style=\"margin-top:12px\">\n";
  html += accuracy_cards(condition, goal);
  html += "</div>\n<div class=\"columns\">\n" + goal_card(condition, goal) + times_card(condition) +
          disagreement_card(condition) + staleness_card(condition);
  return html + "</div>\n" + draw_table(condition) + "</section>\n";
}

std::string draw_overall(const Summary& summary) {
  if (summary.conditions.size() < 2 || summary.overall.text.empty()) return "";
  const OverallRecommendation& overall = summary.overall;
  const std::string badge =
      overall.strategy.empty()
          ? ""
          : fmt::format(" <span class=\"badge\">{}</span>", sure_text(overall.sure));
  return fmt::format(
      "<div class=\"card advice{}\"><p>Under all conditions: <strong>{}</strong>{}</p></div>\n",
      overall.sure ? " sure" : "", escaped(overall.text), badge);
}

std::string draw_notes(const Summary& summary) {
  std::string html = "<div class=\"card\"><h3>How to read this</h3>\n<ul class=\"notes muted\">\n";
  std::vector<std::string> notes = {
      "Accuracy is that of the validation data, at the end of each epoch. Between two epochs the "
      "line is taken as straight: so the time to the goal is found.",
      "Time is training alone: no start of processes, no evaluation.",
      "Bytes are those of all workers together; through shared memory, those that were read from "
      "others.",
      "± and bands are 95% intervals of the mean over seeds, by Student's t.",
      "Trials ran one after the other, so that they did not disturb one another."};
  notes.insert(notes.end(), summary.notes.begin(), summary.notes.end());
  for (const std::string& note : notes) html += fmt::format("<li>{}</li>\n", escaped(note));
  return html + "</ul></div>\n";
}

}  // namespace

std::string draw_page(const Summary& summary) {
  const size_t left = summary.trials - summary.done - summary.failed;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
      "name=\"color-scheme\" content=\"light dark\">\n<title>{0}: strategies compared</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}: strategies compared</h1>\n",
      escaped(summary.job), kPageStyle);
  html += fmt::format("<p class=\"muted\">{}; {}; {} {}; {} of {} trials done{}{}</p>\n",
                      escaped(summary.target), escaped(summary.budget),
                      summary.seeds.size() == 1 ? "seed" : "seeds", fmt::join(summary.seeds, ", "),
                      summary.done, summary.trials,
                      summary.failed > 0 ? fmt::format(", {} failed", summary.failed) : "",
                      left > 0 ? fmt::format(", {} still to come", left) : "");
  if (!summary.goal_reason.empty())
    html += fmt::format("<p class=\"muted\">goal: {}, {}</p>\n", percent_text(summary.goal),
                        escaped(summary.goal_reason));
  html += draw_overall(summary);
  for (const ConditionSummary& condition : summary.conditions)
    html += draw_condition(condition, summary.goal);
  return html + draw_notes(summary) + "</main>\n</body>\n</html>\n";
}

}  // namespace starling
