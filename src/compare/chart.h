// Line charts as SVG for the page of a comparison. Colours are the page's: an element has the
// classes of its series, "s1 d0", and the style sheet gives it a colour for light and dark pages,
// and dashes. Widths are those of the view box; the page scales a chart to the room it has. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace starling {

inline constexpr double kChartWidth = 440;  // of the view box, as all lengths here

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // of the band around y
};

struct ChartLine {
  std::string label;
  size_t series = 0;
  std::vector<ChartPoint> points;
};

// What x counts: the chart chooses a unit by its largest value.
enum class ChartUnit { kSeconds, kSamples, kBytes };

struct LineChart {
  std::string title;  // for who can't see it
  ChartUnit unit = ChartUnit::kSeconds;
  std::vector<ChartLine> lines;
  std::optional<double> goal;  // an accuracy: a line across
};

// Accuracies (0 … 1) over x.
std::string draw_lines(const LineChart& chart);

// The opening tag of a chart of this height, with what screen readers say of it.
std::string open_chart(const std::string& title, double height);
// The classes that give an element the colour and the dashes of its series.
std::string series_class(size_t series);
// As much of the text as is about so wide, with an ellipsis for the rest.
std::string clipped(const std::string& text, double width);
// About how wide a text is, in the size of a chart's labels.
double text_width(const std::string& text);

}  // namespace starling
