#include "compare/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace starling {
namespace {

constexpr const char* kNothing = "–";

// Digits after the point, so that a number has three significant ones.
int decimals(double number) {
  const double size = std::abs(number);
  if (!(size > 0)) return 0;
  return std::clamp(2 - static_cast<int>(std::floor(std::log10(size) + 1e-9)), 0, 6);
}

}  // namespace

std::string digits_text(double number) {
  return std::isfinite(number) ? fmt::format("{:.{}f}", number, decimals(number)) : kNothing;
}

std::string percent_text(double part) { return fmt::format("{:.1f}%", 100 * part); }

std::string percent_text(const Estimate& part) {
  if (!part.is_there()) return kNothing;
  std::string text = fmt::format("{:.2f}%", 100 * part.mean);
  if (part.half) text += fmt::format(" ± {:.2f}", 100 * *part.half);
  return text;
}

std::string seconds_text(double seconds) {
  if (seconds < 120) return digits_text(seconds) + " s";
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string seconds_text(const Estimate& seconds) {
  if (!seconds.is_there()) return kNothing;
  std::string text = seconds_text(seconds.mean);
  if (!seconds.half) return text;
  return text + (seconds.mean < 120
                     ? fmt::format(" ± {:.{}f}", *seconds.half, decimals(seconds.mean))
                     : " ± " + seconds_text(*seconds.half));
}

std::string sent_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; unit + 1 < kUnits.size() && bytes >= 1000; ++unit) bytes /= 1000;
  return fmt::format("{} {}", digits_text(bytes), kUnits[unit]);
}

std::string count_text(double count) {
  std::string text = fmt::format("{:.0f}", count);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string whole_seconds_text(double seconds) {
  return seconds < 119.5 ? fmt::format("{:.0f} s", seconds) : seconds_text(seconds);
}

std::string cut_text(const std::string& text, size_t characters) {
  size_t count = 0, end = 0;  // where the last character begins that would be the ellipsis
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) == 0x80) continue;  // not the first byte of a character
    if (++count == characters) end = i;
    if (count > characters) return characters == 0 ? "" : text.substr(0, end) + "…";
  }
  return text;
}

std::string about_time_text(double seconds) {
  if (seconds < 90) return fmt::format("about {:.0f} s", std::max(1.0, std::ceil(seconds)));
  if (seconds < 5400) return fmt::format("about {:.0f} min", std::ceil(seconds / 60));
  return fmt::format("about {:.1f} h", seconds / 3600);
}

}  // namespace starling
