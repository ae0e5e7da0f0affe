#include "fabric/paced/link_options.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "starling/error.h"

namespace starling {
namespace {

// With less even 125 bytes take longer than a second: nothing can be tried that way.
constexpr uint64_t kRateLeast = 1000;
constexpr std::chrono::seconds kDelayMost{10};

}  // namespace

LinkOptions parse_link(const std::string& rate, const std::string& delay) {
  LinkOptions link;
  if (!rate.empty()) {
    const std::optional<uint64_t> bits = parse_bit_rate(rate);
    if (!bits || *bits < kRateLeast)
      throw input_error(fmt::format("link rate \"{}\" is not one", rate),
                        "write a number and its unit, as 500kbit, 100mbit or 2.5gbit; from 1kbit "
                        "to 1000gbit");
    link.bits_per_second = *bits;
  }
  if (!delay.empty()) {
    const std::optional<std::chrono::nanoseconds> way = parse_duration(delay);
    if (!way || *way > kDelayMost)
      throw input_error(fmt::format("link delay \"{}\" is not one", delay),
                        "write a number and its unit, as 500us, 5ms or 0.1s; at most 10s");
    link.delay = *way;
  }
  return link;
}

}  // namespace starling
