// Charts of bars as SVG for the page of a comparison: a row for each strategy, with its name and
// figure above a bar. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace starling {

// One bar with its interval.
struct Bar {
  std::string label;
  size_t series = 0;
  std::string text;             // the figure
  std::optional<double> value;  // none: there is only the text
  double low = 0, high = 0;     // of the interval; the same as value: none is drawn
};
std::string draw_bars(const std::string& title, const std::vector<Bar>& bars);

// A bar of several parts, and a thin one below it.
struct StackedBar {
  std::string label;
  std::string text;
  std::vector<double> parts;  // drawn with the classes p0, p1, …
  std::vector<std::string> part_texts;
  double below = 0;
  std::string below_text;
};
std::string draw_stacked_bars(const std::string& title, const std::vector<StackedBar>& bars);

// A small histogram for each row: shares (of 1) of what was counted 0, 1, 2, … times.
struct Histogram {
  std::string label;
  size_t series = 0;
  std::string text;
  std::vector<double> shares;
};
std::string draw_histograms(const std::string& title, const std::vector<Histogram>& rows);

}  // namespace starling
