#include "observe/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "observe/curves_axis.h"
#include "observe/markup.h"

namespace starling {
namespace {

constexpr double kWidth = 960, kHeight = 424;  // pixels, as all lengths here
constexpr double kMargin = 32, kGap = 48;
constexpr double kPanelTop = 158, kPanelBottom = 372;
constexpr double kAxisWidth = 44;   // for the labels of the y axis
constexpr size_t kMarkersMax = 25;  // more epochs are drawn without a dot each

constexpr std::string_view kInk = "#1f2937", kMuted = "#6b7280", kGrid = "#e8ebf0";
constexpr std::array<std::string_view, 6> kColors = {"#2563eb", "#f97316", "#10b981",
                                                     "#a855f7", "#e11d48", "#0891b2"};

struct Series {
  std::string label;
  std::string_view color;
  std::vector<double> values;
};

struct Panel {
  std::string_view title;
  bool percent = false;
  std::vector<Series> series;
};

struct Frame {
  double left, right;  // of the plotting area
  Axis x, y;

  double x_of(double value) const { return left + (right - left) * x.position(value); }
  double y_of(double value) const {
    return kPanelBottom - (kPanelBottom - kPanelTop) * y.position(value);
  }
};

// "train_loss" in the panel of losses is "train"; "val_top5_accuracy" is "validation top5".
std::string label_of(std::string name, std::string_view kind) {
  name.resize(name.size() - kind.size());
  if (name.ends_with('_')) name.pop_back();
  if (name == "val" || name.starts_with("val_")) name.replace(0, 3, "validation");
  std::replace(name.begin(), name.end(), '_', ' ');
  return name.empty() ? std::string(kind) : name;
}

// The same word has the same colour in both panels.
std::string_view color_of(const std::string& label, size_t index) {
  if (label == "train") return kColors[0];
  if (label == "validation") return kColors[1];
  return kColors[2 + index % (kColors.size() - 2)];
}

Panel panel_of(const History& history, std::string_view title, std::string_view kind,
               bool percent) {
  Panel panel{title, percent, {}};
  size_t others = 0;
  for (const std::string& name : history.names()) {
    if (!name.ends_with(kind)) continue;
    Series series{label_of(name, kind), {}, history.column(name)};
    const bool known = series.label == "train" || series.label == "validation";
    series.color = color_of(series.label, known ? 0 : others++);
    panel.series.push_back(std::move(series));
  }
  return panel;
}

Frame frame_of(const Panel& panel, const std::vector<double>& epochs, double left, double right) {
  std::vector<double> all;
  for (const Series& series : panel.series) {
    all.insert(all.end(), series.values.begin(), series.values.end());
  }
  return {left + kAxisWidth, right, epoch_axis(epochs), value_axis(all, panel.percent)};
}

std::string value_text(double value, bool percent) {
  if (!std::isfinite(value)) return "–";
  if (percent) return fmt::format("{:.2f}%", 100 * value);
  const double size = std::abs(value);
  return size != 0 && (size < 1e-3 || size >= 1e4) ? fmt::format("{:.2e}", value)
                                                   : fmt::format("{:.4f}", value);
}

std::string draw_axes(const Frame& frame, bool percent) {
  std::string svg;
  for (const double tick : frame.y.ticks) {
    const double y = frame.y_of(tick);
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
        frame.left, y, frame.right, y, kGrid, frame.left - 10, y + 4, kMuted,
        frame.y.label(tick, percent));
  }
  svg += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#9ca3af\"/>\n",
      frame.left, kPanelBottom, frame.right, kPanelBottom);
  for (const double tick : frame.x.ticks) {
    const double x = frame.x_of(tick);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#9ca3af\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"{4}\">{5:.0f}</text>\n",
        x, kPanelBottom, kPanelBottom + 5, kPanelBottom + 20, kMuted, tick);
  }
  return svg + fmt::format(
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">epoch"
                   "</text>\n",
                   (frame.left + frame.right) / 2, kPanelBottom + 38, kMuted);
}

std::string draw_series(const Series& series, const std::vector<double>& epochs,
                        const Frame& frame) {
  std::string path, dots;
  bool pen_down = false;
  for (size_t i = 0; i < epochs.size(); ++i) {
    const double value = series.values[i];
    if (!std::isfinite(value)) {
      pen_down = false;
      continue;
    }
    const double x = frame.x_of(epochs[i]), y = frame.y_of(value);
    path += fmt::format("{}{:.1f} {:.1f} ", pen_down ? 'L' : 'M', x, y);
    pen_down = true;
    const bool last = i + 1 == epochs.size();
    if (last || epochs.size() <= kMarkersMax) {
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"#ffffff\" "
          "stroke-width=\"1.5\"/>\n",
          x, y, last ? 5 : 3.5, series.color);
    }
  }
  if (path.empty()) return path;
  path.pop_back();
  return fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\" stroke-linejoin=\"round\" "
      "stroke-linecap=\"round\"/>\n{}",
      path, series.color, dots);
}

// The names of the series in one row above the panel, with their last values when these fit.
std::string draw_legend(const Panel& panel, double left, double right) {
  constexpr double kSwatch = 22, kCharacter = 7.2, kSpace = 24;  // generous, as fonts differ
  const auto width_of = [](size_t characters) {
    return kSwatch + kCharacter * static_cast<double>(characters) + kSpace;
  };
  std::vector<std::string> values;
  double full_width = 0;
  for (const Series& series : panel.series) {
    values.push_back(value_text(series.values.back(), panel.percent));
    full_width += width_of(series.label.size() + 1 + values.back().size());
  }
  if (full_width - kSpace > right - left) std::fill(values.begin(), values.end(), "");
  std::string svg;
  double x = left;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{y:.1f}\" x2=\"{:.1f}\" y2=\"{y:.1f}\" stroke=\"{}\" "
        "stroke-width=\"4\" stroke-linecap=\"round\"/>\n"
        "<text x=\"{:.1f}\" y=\"{text_y:.1f}\" fill=\"{}\">{} <tspan font-weight=\"600\" "
        "fill=\"{}\">{}</tspan></text>\n",
        x + 2, x + 14, series.color, x + kSwatch, kMuted, escaped(series.label), kInk, values[i],
        fmt::arg("y", kPanelTop - 24), fmt::arg("text_y", kPanelTop - 20));
    x += width_of(series.label.size() + 1 + values[i].size());
  }
  return svg;
}

std::string draw_panel(const Panel& panel, const std::vector<double>& epochs, double left,
                       double right) {
  const Frame frame = frame_of(panel, epochs, left, right);
  std::string svg = fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"15\" font-weight=\"600\" fill=\"{}\">{}<tspan "
      "dx=\"6\" font-size=\"12.5\" font-weight=\"400\">{}</tspan></text>\n",
      left, kPanelTop - 48, kInk, panel.title, frame.y.logarithmic ? "(log scale)" : "");
  svg += draw_legend(panel, left, right) + draw_axes(frame, panel.percent);
  // The first series is the one trained on; those after it matter more and lie on top.
  for (const Series& series : panel.series) svg += draw_series(series, epochs, frame);
  return svg;
}

}  // namespace

std::string draw_curves(const History& history, const CurvesOptions& options) {
  const std::vector<double> epochs = history.column("epoch");
  std::vector<Panel> panels = {panel_of(history, "Loss", "loss", false),
                               panel_of(history, "Accuracy", "accuracy", true)};
  std::erase_if(panels, [](const Panel& panel) { return panel.series.empty(); });
  const std::string title = options.title.empty() ? "Training" : options.title;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" "
      "height=\"{h}\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, "
      "'Helvetica Neue', Arial, sans-serif\" font-size=\"12.5\">\n<title>{t}</title>\n"
      "<rect x=\"0.5\" y=\"0.5\" width=\"{rw}\" height=\"{rh}\" rx=\"12\" fill=\"#ffffff\" "
      "stroke=\"#d8dee6\"/>\n"
      "<text x=\"{m}\" y=\"42\" font-size=\"19\" font-weight=\"700\" fill=\"{ink}\">{t}</text>\n"
      "<text x=\"{m}\" y=\"63\" font-size=\"13\" fill=\"{muted}\">{s}</text>\n",
      fmt::arg("w", kWidth), fmt::arg("h", kHeight), fmt::arg("rw", kWidth - 1),
      fmt::arg("rh", kHeight - 1), fmt::arg("m", kMargin), fmt::arg("ink", kInk),
      fmt::arg("muted", kMuted), fmt::arg("t", escaped(title)),
      fmt::arg("s", escaped(options.subtitle)));
  if (panels.empty()) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"15\" fill=\"{}\">no epoch is "
        "complete yet</text>\n",
        kWidth / 2, kHeight / 2 + 20, kMuted);
  }
  const auto count = static_cast<double>(panels.size());
  const double width = (kWidth - 2 * kMargin - kGap * (count - 1)) / std::max(count, 1.0);
  double left = kMargin;
  for (const Panel& panel : panels) {
    svg += draw_panel(panel, epochs, left, left + width);
    left += width + kGap;
  }
  return svg + "</svg>\n";
}

void write_curves(const History& history, const std::filesystem::path& path,
                  const CurvesOptions& options) {
  write_file_atomically(path, draw_curves(history, options));
}

}  // namespace starling
