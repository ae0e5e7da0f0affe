#include "compare/chart_bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/chart.h"
#include "compare/texts.h"
#include "observe/markup.h"

namespace starling {
namespace {

constexpr double kMargin = 8, kEnd = kChartWidth - kMargin;
constexpr double kRow = 46, kBarTop = 24, kBarHeight = 13;  // in a row
constexpr double kHistogramRow = 96, kHistogramTop = 26, kHistogramHeight = 44;
constexpr size_t kBins = 12;  // the last holds all beyond

// The name on the left and the figure on the right, above a bar.
std::string row_texts(const std::string& label, const std::string& text, double top) {
  const double room = kEnd - kMargin - text_width(text) - 12;
  return fmt::format(
      "<text class=\"name\" x=\"{:.1f}\" y=\"{y:.1f}\">{}<title>{}</title></text>"
      "<text class=\"figure\" x=\"{:.1f}\" y=\"{y:.1f}\">{}</text>\n",
      kMargin, escaped(clipped(label, room)), escaped(label), kEnd, escaped(text),
      fmt::arg("y", top + 16));
}

std::string rectangle(const std::string& style, double left, double right, double top,
                      double height, const std::string& tooltip) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
      "<title>{}</title></rect>\n",
      style, left, top, std::max(0.0, right - left), height, escaped(tooltip));
}

double x_of(double value, double largest) {
  return kMargin + (kEnd - kMargin) * std::clamp(value / std::max(largest, 1e-300), 0.0, 1.0);
}

std::string whisker(double low, double high, double top, double largest) {
  const double left = x_of(low, largest), right = x_of(high, largest),
               middle = top + kBarHeight / 2;
  std::string svg = fmt::format(
      "<line class=\"whisker\" x1=\"{:.1f}\" y1=\"{y:.1f}\" x2=\"{:.1f}\" y2=\"{y:.1f}\"/>", left,
      right, fmt::arg("y", middle));
  for (const double x : {left, right})
    svg += fmt::format(
        "<line class=\"whisker\" x1=\"{x:.1f}\" y1=\"{:.1f}\" x2=\"{x:.1f}\" y2=\"{:.1f}\"/>",
        middle - 4, middle + 4, fmt::arg("x", x));
  return svg + "\n";
}

}  // namespace

std::string draw_bars(const std::string& title, const std::vector<Bar>& bars) {
  // Intervals of two seeds are wide: bars stay longer than a third of the chart.
  double largest = 0, largest_value = 0;
  for (const Bar& bar : bars) {
    if (!bar.value) continue;
    largest = std::max({largest, *bar.value, bar.high});
    largest_value = std::max(largest_value, *bar.value);
  }
  largest = std::min(largest, 3 * largest_value);
  std::string svg = open_chart(title, kRow * static_cast<double>(bars.size()) + 4);
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double top = kRow * static_cast<double>(i);
    svg += row_texts(bar.label, bar.text, top);
    svg += rectangle("track", kMargin, kEnd, top + kBarTop, kBarHeight, bar.text);
    if (!bar.value) continue;
    svg += rectangle("bar " + series_class(bar.series), kMargin, x_of(*bar.value, largest),
                     top + kBarTop, kBarHeight, fmt::format("{}: {}", bar.label, bar.text));
    if (bar.high > bar.low) svg += whisker(bar.low, bar.high, top + kBarTop, largest);
  }
  return svg + "</svg>\n";
}

std::string draw_stacked_bars(const std::string& title, const std::vector<StackedBar>& bars) {
  double largest = 0;
  for (const StackedBar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    largest = std::max(largest, sum);
  }
  std::string svg = open_chart(title, kRow * static_cast<double>(bars.size()) + 4);
  for (size_t i = 0; i < bars.size(); ++i) {
    const StackedBar& bar = bars[i];
    const double top = kRow * static_cast<double>(i);
    svg += row_texts(bar.label, bar.text, top);
    double from = 0;
    for (size_t part = 0; part < bar.parts.size(); ++part) {
      const double to = from + std::max(0.0, bar.parts[part]);
      svg += rectangle(fmt::format("p{}", part), x_of(from, largest), x_of(to, largest),
                       top + kBarTop, kBarHeight, bar.part_texts[part]);
      from = to;
    }
    if (bar.below > 0)
      svg += rectangle("hidden", kMargin, x_of(bar.below, largest), top + kBarTop + kBarHeight + 2,
                       4, bar.below_text);
  }
  return svg + "</svg>\n";
}

std::string draw_histograms(const std::string& title, const std::vector<Histogram>& rows) {
  std::string svg = open_chart(title, kHistogramRow * static_cast<double>(rows.size()) + 4);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Histogram& row = rows[i];
    const double top = kHistogramRow * static_cast<double>(i);
    const double bottom = top + kHistogramTop + kHistogramHeight;
    std::vector<double> bins = row.shares;
    const bool has_beyond = bins.size() > kBins;
    for (size_t bin = kBins; bin < row.shares.size(); ++bin) bins[kBins - 1] += row.shares[bin];
    bins.resize(std::min(bins.size(), kBins));
    const double width = (kEnd - kMargin) / kBins;
    svg += row_texts(row.label, row.text, top);
    for (size_t bin = 0; bin < bins.size(); ++bin) {
      const double left = kMargin + width * static_cast<double>(bin);
      const bool is_beyond = has_beyond && bin + 1 == bins.size();
      const std::string count = fmt::format("{}{}", bin, is_beyond ? "+" : "");
      svg += rectangle(
          "bar " + series_class(row.series), left + 3, left + width - 3,
          bottom - kHistogramHeight * bins[bin], kHistogramHeight * bins[bin],
          fmt::format("{}: {} missed {} updates", row.label, percent_text(bins[bin]), count));
      svg += fmt::format("<text class=\"tick x\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                         left + width / 2, bottom + 17, count);
    }
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{y:.1f}\" x2=\"{:.1f}\" y2=\"{y:.1f}\"/>\n",
        kMargin, kEnd, fmt::arg("y", bottom));
  }
  return svg + "</svg>\n";
}

}  // namespace starling
