// LinkOptions: the network that workers are to see instead of the one that they have. A plain
// value.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace starling {

struct LinkOptions {
  uint64_t bits_per_second = 0;       // of each worker's interface, each way; 0: as fast as it goes
  std::chrono::nanoseconds delay{0};  // one way

  bool paces() const { return bits_per_second > 0 || delay.count() > 0; }
  friend bool operator==(const LinkOptions&, const LinkOptions&) = default;
};

// From "100mbit" and "5ms"; either may be empty, for none. Throws input Error: for a rate that is
// not from 1 kbit to 1000 gbit, and for a delay of more than 10 s.
LinkOptions parse_link(const std::string& rate, const std::string& delay);

}  // namespace starling
