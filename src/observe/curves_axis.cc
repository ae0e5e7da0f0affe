#include "observe/curves_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace starling {
namespace {

// The smallest of 1, 2, 5, 10, 20 … (and 0.5, 0.2 …) that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<double> ticks_between(double low, double high, double step) {
  std::vector<double> ticks;
  const double slack = 1e-6;  // of a step, for rounding
  const double first = std::ceil(low / step - slack);
  const int count = static_cast<int>(std::floor(high / step + slack) - first);
  for (int i = 0; i <= count; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

// Ticks at powers of ten, with at most eight of them.
Axis logarithmic_axis(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const int last = static_cast<int>(std::ceil(std::log10(high) - 1e-9));
  const int stride = (last - first) / 8 + 1;
  Axis axis{std::pow(10, first), std::pow(10, last), 1, {}, true};
  for (int power = first; power <= last; power += stride) axis.ticks.push_back(std::pow(10, power));
  return axis;
}

}  // namespace

double Axis::position(double value) const {
  const double inside = std::clamp(value, low, high);
  if (!logarithmic) return (inside - low) / (high - low);
  return std::log10(inside / low) / std::log10(high / low);
}

std::string Axis::label(double tick, bool percent) const {
  const double scale = percent ? 100 : 1;
  const double shown = std::abs(tick) < step * 1e-6 ? 0 : tick * scale;
  if (logarithmic) return fmt::format("{:g}", tick);
  if (!percent && (step >= 1e5 || step < 1e-4)) return fmt::format("{:.3g}", shown);
  const int digits = static_cast<int>(std::max(0.0, -std::floor(std::log10(step * scale) + 1e-9)));
  return fmt::format("{:.{}f}{}", shown, digits, percent ? "%" : "");
}

Axis value_axis(std::span<const double> values, bool percent) {
  constexpr double kLargest = 1e300;  // so that no difference overflows
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, std::clamp(value, -kLargest, kLargest));
    high = std::max(high, std::clamp(value, -kLargest, kLargest));
  }
  if (low > high) low = 0, high = 1;  // no value at all
  constexpr double kLinearRatioMax = 100;
  if (!percent && low > 1e-300 && high / low > kLinearRatioMax) return logarithmic_axis(low, high);
  const double smallest = std::max(std::abs(high), std::abs(low)) * 1e-6;
  const double air = std::max({0.08 * (high - low), smallest, 1e-9});
  const bool in_percent_range = percent && low >= 0 && high <= 1;
  const bool not_negative = low >= 0;
  low -= air, high += air;
  if (not_negative) low = std::max(low, 0.0);
  if (in_percent_range) high = std::min(high, 1.0);
  const double step = round_step((high - low) / 5);
  Axis axis{
      std::floor(low / step + 1e-6) * step, std::ceil(high / step - 1e-6) * step, step, {}, false};
  axis.ticks = ticks_between(axis.low, axis.high, step);
  return axis;
}

Axis epoch_axis(std::span<const double> epochs) {
  Axis axis{0, 2, 1, {1}, false};
  if (epochs.empty()) return axis;
  const auto [low, high] = std::minmax_element(epochs.begin(), epochs.end());
  if (*low == *high)
    return {*low - 1, *low + 1, 1, {*low}, false};  // a lone epoch is in the middle
  const double step = std::max(1.0, round_step((*high - *low) / 10));
  return {*low, *high, step, ticks_between(*low, *high, step), false};
}

}  // namespace starling
