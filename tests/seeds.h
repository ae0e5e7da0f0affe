// How many seeds a test goes through that is true for any: `count`, and as many times more as the
// environment's STARLING_SEEDS says (tools/test_long sets it).
#pragma once

#include <cstdint>
#include <cstdlib>

namespace starling {

inline uint64_t seed_count(uint64_t count) {
  const char* times = std::getenv("STARLING_SEEDS");
  return times == nullptr ? count : count * std::strtoull(times, nullptr, 10);
}

}  // namespace starling
