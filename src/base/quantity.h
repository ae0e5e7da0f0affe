// Quantities with units as people write them: "100mbit", "5ms". Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace starling {

// Bits per second of "9600bit", "500kbit", "100mbit" or "2.5gbit" (thousands, as networks count).
// Nothing when it is no such text, less than 1 bit, or more than 1000 gbit.
std::optional<uint64_t> parse_bit_rate(std::string_view text);

// Of "250ns", "500us", "5ms", "0.1s", "2min" or "1.5h". Nothing when it is no such text, or more
// than a day.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace starling
