#include "compare/page_cards.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/chart.h"
#include "compare/chart_bars.h"
#include "compare/page_style.h"
#include "compare/texts.h"

namespace starling {
namespace {

std::string part_swatch(const std::string& style) {
  return fmt::format(
      "<svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect class=\"{}\" width=\"12\" "
      "height=\"12\" rx=\"2\"/></svg>",
      style);
}

std::string card(const std::string& title, const std::string& below, const std::string& content) {
  return fmt::format("<div class=\"card\"><h3>{}</h3><p class=\"muted\">{}</p>\n{}</div>\n", title,
                     below, content);
}

std::string accuracy_chart(const ConditionSummary& condition, const std::string& title,
                           ChartUnit unit, double goal) {
  LineChart chart{.title = title, .unit = unit, .lines = {}, .goal = goal};
  for (size_t i = 0; i < condition.strategies.size(); ++i) {
    const StrategySummary& strategy = condition.strategies[i];
    ChartLine line{.label = strategy.label, .series = series_of(condition, i), .points = {}};
    for (const CurvePoint& point : strategy.curve) {
      const double x = unit == ChartUnit::kSeconds   ? point.seconds
                       : unit == ChartUnit::kSamples ? point.samples
                                                     : point.bytes;
      if (unit == ChartUnit::kBytes && x == 0) continue;  // one process sends nothing
      line.points.push_back({x, point.accuracy.mean, point.accuracy.low(), point.accuracy.high()});
    }
    chart.lines.push_back(std::move(line));
  }
  return draw_lines(chart);
}

bool sends(const StrategySummary& strategy) {
  return std::any_of(strategy.curve.begin(), strategy.curve.end(),
                     [](const CurvePoint& point) { return point.bytes > 0; });
}

}  // namespace

size_t series_of(const ConditionSummary& condition, size_t index) {
  if (condition.strategies[index].reference) return 0;
  const bool has_reference = condition.strategies.front().reference;
  const size_t place = has_reference ? index - 1 : index;
  const size_t round = place / (kSeriesColors - 1), color = 1 + place % (kSeriesColors - 1);
  return round % kSeriesDashes * kSeriesColors + color;
}

std::string accuracy_cards(const ConditionSummary& condition, double goal) {
  struct Chart {
    const char *title, *below;
    ChartUnit unit;
  };
  std::vector<Chart> charts = {
      {"Accuracy against time", "of training, without evaluation", ChartUnit::kSeconds},
      {"Accuracy against samples", "mean over seeds; bands: 95% interval", ChartUnit::kSamples}};
  if (std::any_of(condition.strategies.begin(), condition.strategies.end(), sends))
    charts.push_back({"Accuracy against bytes", "one process sends none", ChartUnit::kBytes});
  std::string html;
  for (const Chart& chart : charts)
    html +=
        card(chart.title, chart.below, accuracy_chart(condition, chart.title, chart.unit, goal));
  return html;
}

std::string goal_card(const ConditionSummary& condition, double goal) {
  std::vector<Bar> bars;
  for (size_t i = 0; i < condition.strategies.size(); ++i) {
    const StrategySummary& strategy = condition.strategies[i];
    if (strategy.seeds.empty()) continue;
    const Estimate& time = strategy.time_to_goal;
    Bar bar{
        .label = strategy.label, .series = series_of(condition, i), .text = strategy.goal_text()};
    if (time.is_there()) {
      bar.value = time.mean;
      bar.low = time.low();
      bar.high = time.high();
    }
    bars.push_back(std::move(bar));
  }
  return card(fmt::format("Time to {}", percent_text(goal)),
              "training time; whiskers: 95% interval over seeds",
              draw_bars("Time to the goal", bars));
}

std::string times_card(const ConditionSummary& condition) {
  const std::vector<const char*> names = {"input", "computing", "communication", "waiting"};
  std::vector<StackedBar> bars;
  for (const StrategySummary& strategy : condition.strategies) {
    if (strategy.seeds.empty()) continue;
    const TimeSplit& times = strategy.times;
    StackedBar bar{.label = strategy.label,
                   .text = seconds_text(times.all()),
                   .parts = {times.input, times.compute, times.communication, times.waiting},
                   .part_texts = {},
                   .below = times.hidden,
                   .below_text = "hidden: " + seconds_text(times.hidden)};
    for (size_t i = 0; i < names.size(); ++i)
      bar.part_texts.push_back(
          fmt::format("{}: {} {}", strategy.label, names[i], seconds_text(bar.parts[i])));
    bars.push_back(std::move(bar));
  }
  std::string legend = "<ul class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i)
    legend += fmt::format("<li>{}{}</li>", part_swatch(fmt::format("p{}", i)), names[i]);
  legend += fmt::format("<li>{}communication behind computing</li></ul>\n", part_swatch("hidden"));
  return card("Where the time went", "of training, mean over workers and seeds",
              legend + draw_stacked_bars("Where the time went", bars));
}

std::string staleness_card(const ConditionSummary& condition) {
  std::vector<Histogram> rows;
  for (size_t i = 0; i < condition.strategies.size(); ++i) {
    const StrategySummary& strategy = condition.strategies[i];
    if (strategy.staleness.mean == 0) continue;  // there is none, or never any
    rows.push_back({.label = strategy.label,
                    .series = series_of(condition, i),
                    .text = "mean " + digits_text(strategy.staleness.mean),
                    .shares = strategy.staleness_shares});
  }
  if (rows.empty()) return "";
  return card("Staleness", "gradients by the number of updates that their weights had missed",
              draw_histograms("Staleness", rows));
}

std::string disagreement_card(const ConditionSummary& condition) {
  std::vector<Bar> bars;
  for (size_t i = 0; i < condition.strategies.size(); ++i) {
    const StrategySummary& strategy = condition.strategies[i];
    const Estimate& one = strategy.disagreement;
    if (!one.is_there()) continue;
    bars.push_back({.label = strategy.label,
                    .series = series_of(condition, i),
                    .text = percent_text(one),
                    .value = one.mean,
                    .low = one.low(),
                    .high = one.high()});
  }
  if (bars.empty()) return "";
  return card("Disagreement", "how far workers went from one another, of the length of the weights",
              draw_bars("Disagreement", bars));
}

}  // namespace starling
