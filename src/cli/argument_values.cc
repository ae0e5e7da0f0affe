#include "cli/argument_values.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>

#include "base/quantity.h"
#include "starling/error.h"

namespace starling {

std::string problem_of_whole_number(const std::string& text) {
  int64_t number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end && number >= 0) return "";
  return fmt::format("\"{}\" is no whole number from 0 on{}", text,
                     error == std::errc::result_out_of_range ? " that is small enough" : "");
}

double parse_time(const std::string& text) {
  const std::optional<std::chrono::nanoseconds> time = parse_duration(text);
  if (time && *time > std::chrono::nanoseconds(0))
    return std::chrono::duration<double>(*time).count();
  throw input_error(fmt::format("--time: \"{}\" is no time", text),
                    "write for instance 90s, 5min or 1.5h");
}

size_t parse_size(const std::string& text) {
  constexpr std::pair<std::string_view, size_t> kUnits[] = {
      {"B", 1}, {"KiB", size_t{1} << 10}, {"MiB", size_t{1} << 20}, {"GiB", size_t{1} << 30}};
  constexpr size_t kMost = size_t{4} << 30;
  size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  for (const auto& [unit, bytes] : kUnits) {
    if (error != std::errc() || std::string_view(rest, end) != unit) continue;
    if (number == 0 || number > kMost / bytes || number * bytes % sizeof(float) != 0) break;
    return number * bytes;
  }
  throw input_error(fmt::format("--sizes: \"{}\" is no size that can be measured", text),
                    "write sizes such as 8B,64KiB,1MiB: whole numbers, multiples of 4 bytes, at "
                    "most 4GiB");
}

Arguments::SampleRange parse_range(const std::string& text) {
  Arguments::SampleRange range;
  const size_t colon = text.find(':');
  const char* end = text.data() + text.size();
  const char* middle = text.data() + std::min(colon, text.size());
  const auto first = std::from_chars(text.data(), middle, range.first);
  const auto last =
      colon == std::string::npos ? first : std::from_chars(middle + 1, end, range.last);
  if (colon == std::string::npos || first.ec != std::errc() || first.ptr != middle ||
      last.ec != std::errc() || last.ptr != end || range.first >= range.last) {
    throw input_error(fmt::format("--samples {} is not a range", text),
                      "write FIRST:LAST, for instance 0:10 for the first ten");
  }
  return range;
}

}  // namespace starling
