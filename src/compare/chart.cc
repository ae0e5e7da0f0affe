#include "compare/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/page_style.h"
#include "compare/texts.h"
#include "observe/curves_axis.h"
#include "observe/markup.h"

namespace starling {
namespace {

constexpr double kHeight = 300, kLeft = 52, kRight = 26, kTop = 22, kBottom = 52;
constexpr double kCharacter = 7.2;  // generous, as fonts differ
constexpr size_t kDotsMax = 25;     // a line of more points has no dot for each
constexpr double kLogRatio = 100;   // as value_axis() does it

struct Unit {
  double size;
  const char* name;
};

Unit unit_of(ChartUnit unit, double largest) {
  switch (unit) {
    case ChartUnit::kSeconds:
      return largest < 300     ? Unit{1, "training time, s"}
             : largest < 18000 ? Unit{60, "training time, min"}
                               : Unit{3600, "training time, h"};
    case ChartUnit::kSamples:
      return largest < 20000  ? Unit{1, "samples"}
             : largest < 20e6 ? Unit{1e3, "thousand samples"}
                              : Unit{1e6, "million samples"};
    case ChartUnit::kBytes:
      break;
  }
  return largest < 2e3    ? Unit{1, "bytes sent by all workers"}
         : largest < 2e6  ? Unit{1e3, "kB sent by all workers"}
         : largest < 2e9  ? Unit{1e6, "MB sent by all workers"}
         : largest < 2e12 ? Unit{1e9, "GB sent by all workers"}
                          : Unit{1e12, "TB sent by all workers"};
}

std::string value_text(ChartUnit unit, double value) {
  switch (unit) {
    case ChartUnit::kSeconds:
      return seconds_text(value);
    case ChartUnit::kSamples:
      return count_text(value) + " samples";
    case ChartUnit::kBytes:
      break;
  }
  return sent_text(value);
}

// The plotting area with its axes; x in the chosen unit.
class Plot {
 public:
  explicit Plot(const LineChart& chart) {
    std::vector<double> xs, ys;
    double largest = 0;
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : line.points) {
        largest = std::max(largest, point.x);
        if (point.x > 0) xs.push_back(point.x);
        ys.push_back(point.y);
      }
    }
    if (chart.goal) ys.push_back(*chart.goal);
    unit_ = unit_of(chart.unit, largest);
    for (double& x : xs) x /= unit_.size;
    // Bytes of strategies may differ by orders of magnitude; time and samples begin with 0.
    const bool logarithmic =
        chart.unit == ChartUnit::kBytes && !xs.empty() &&
        largest / unit_.size / *std::min_element(xs.begin(), xs.end()) > kLogRatio;
    if (!logarithmic) xs.push_back(0);
    x_ = value_axis(xs, false);
    y_ = value_axis(ys, true);
  }

  double x_of(double value) const {
    return kLeft + (kChartWidth - kRight - kLeft) * x_.position(value / unit_.size);
  }
  double y_of(double value) const {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * y_.position(value);
  }

  std::string axes() const {
    std::string svg;
    const double bottom = kHeight - kBottom, right = kChartWidth - kRight;
    for (const double tick : y_.ticks) {
      const double y = y_of(tick);
      svg += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>"
          "<text class=\"tick y\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
          kLeft, y, right, kLeft - 8, y + 4.5, y_.label(tick, true));
    }
    for (const double tick : x_.ticks) {
      const double x = x_of(tick * unit_.size);
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
          "<text class=\"tick x\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
          x, bottom, bottom + 5, bottom + 20, x_.label(tick, false));
    }
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{y:.1f}\" x2=\"{:.1f}\" y2=\"{y:.1f}\"/>\n", kLeft,
        right, fmt::arg("y", bottom));
    return svg + fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{}{}</text>\n",
                             (kLeft + right) / 2, kHeight - 10, unit_.name,
                             x_.logarithmic ? " (log scale)" : "");
  }

 private:
  Unit unit_{};
  Axis x_, y_;
};

std::string draw_goal(const Plot& plot, double goal) {
  const double y = plot.y_of(goal);
  return fmt::format(
      "<line class=\"goal\" x1=\"{:.1f}\" y1=\"{y:.1f}\" x2=\"{:.1f}\" y2=\"{y:.1f}\"/>"
      "<text class=\"goal\" x=\"{:.1f}\" y=\"{:.1f}\">goal {}</text>\n",
      kLeft, kChartWidth - kRight, kLeft + 5, y - 5, percent_text(goal), fmt::arg("y", y));
}

std::string draw_band(const Plot& plot, const ChartLine& line) {
  if (line.points.size() < 2) return "";
  std::string there, back;
  bool has_band = false;
  for (const ChartPoint& point : line.points) {
    const double x = plot.x_of(point.x);
    there += fmt::format("{:.1f},{:.1f} ", x, plot.y_of(point.high));
    back = fmt::format("{:.1f},{:.1f} ", x, plot.y_of(point.low)) + back;
    has_band = has_band || point.high > point.low;
  }
  if (!has_band) return "";
  return fmt::format("<polygon class=\"band {}\" points=\"{}{}\"/>\n", series_class(line.series),
                     there, back);
}

std::string draw_line(const Plot& plot, const ChartLine& line, ChartUnit unit) {
  std::string path, dots;
  for (const ChartPoint& point : line.points) {
    const double x = plot.x_of(point.x), y = plot.y_of(point.y);
    path += fmt::format("{:.1f},{:.1f} ", x, y);
    if (line.points.size() > kDotsMax && &point != &line.points.back()) continue;
    dots += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {} after {}</title>"
        "</circle>",
        series_class(line.series), x, y, escaped(line.label), percent_text(point.y),
        value_text(unit, point.x));
  }
  return fmt::format("<polyline class=\"line {}\" points=\"{}\"/>{}\n", series_class(line.series),
                     path, dots);
}

}  // namespace

std::string open_chart(const std::string& title, double height) {
  return fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
      kChartWidth, height, escaped(title));
}

std::string series_class(size_t series) {
  return fmt::format("s{} d{}", series % kSeriesColors, series / kSeriesColors);
}

double text_width(const std::string& text) {
  return kCharacter * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
           return (c & 0xC0) != 0x80;  // of UTF-8, the first byte of each
         }));
}

std::string clipped(const std::string& text, double width) {
  if (text_width(text) <= width) return text;
  return cut_text(text, static_cast<size_t>(std::max(2.0, width / kCharacter)));
}

std::string draw_lines(const LineChart& chart) {
  const Plot plot(chart);
  std::string svg = open_chart(chart.title, kHeight) + plot.axes();
  for (const ChartLine& line : chart.lines) svg += draw_band(plot, line);
  for (const ChartLine& line : chart.lines) {
    if (!line.points.empty()) svg += draw_line(plot, line, chart.unit);
  }
  if (chart.goal) svg += draw_goal(plot, *chart.goal);
  return svg + "</svg>\n";
}

}  // namespace starling
