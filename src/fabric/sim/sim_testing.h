// Seeds for tests under sim: Dice are drawn from one; for_each_seed runs a body for many, stops at
// the first that fails, and says which it was and how to run it alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "base/function_ref.h"
#include "base/random.h"
#include "seeds.h"

namespace starling {

// Numbers that follow from the seed, one after another.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t below(uint64_t limit) { return mix64(++state_) % limit; }

 private:
  uint64_t state_;
};

// Seeds 0 … seed_count(count)−1, or only that of the environment's STARLING_SIM_SEED.
inline void for_each_seed(uint64_t count, FunctionRef<void(uint64_t seed)> body) {
  uint64_t first = 0, last = seed_count(count);
  if (const char* only = std::getenv("STARLING_SIM_SEED")) {
    first = std::strtoull(only, nullptr, 10);
    last = first + 1;
  }
  for (uint64_t seed = first; seed < last && !testing::Test::HasFailure(); ++seed) {
    const std::string text = std::to_string(seed);
    SCOPED_TRACE("sim seed " + text + ": run it alone with STARLING_SIM_SEED=" + text);
    try {
      body(seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace starling
