#include "base/quantity.h"

#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace starling {
namespace {

using Unit = std::pair<std::string_view, double>;

constexpr double kBitRateMost = 1e12;
constexpr double kDurationMost = 86400e9;

// A number, in full and not negative, and right behind it one of the units: their product, rounded.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  // It would also take "-1", "inf" and ".5".
  if (error != std::errc() || text.front() < '0' || text.front() > '9') return std::nullopt;
  for (const auto& [unit, factor] : units) {
    if (std::string_view(rest, end) == unit) return std::round(number * factor);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> parse_bit_rate(std::string_view text) {
  constexpr Unit kUnits[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  const std::optional<double> rate = parse_quantity(text, kUnits);
  if (!rate || *rate < 1 || *rate > kBitRateMost) return std::nullopt;
  return static_cast<uint64_t>(*rate);
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  constexpr Unit kUnits[] = {{"ns", 1},  {"us", 1e3},   {"ms", 1e6},
                             {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  const std::optional<double> duration = parse_quantity(text, kUnits);
  if (!duration || *duration > kDurationMost) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(*duration));
}

}  // namespace starling
