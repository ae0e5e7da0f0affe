// For tests of kernels: random data, comparison with sums in f64, and running a body once for
// every target of Highway that this machine has. Single-threaded: the target is a global.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"

namespace starling::testing_kernels {

// 0, 1, around the widths of vectors, primes, and large.
inline const std::vector<int64_t> kSizes = {0,  1,  2,  3,  4,  5,  7,  8,  9,   13,  15,   16,
                                            17, 23, 31, 32, 33, 47, 64, 67, 100, 257, 1009, 4099};

inline std::vector<float> random_floats(int64_t n, uint64_t seed, float low = -2, float high = 2) {
  const RandomStream stream(seed, Draw::kSynthetic);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = low + (high - low) * stream.uniform(i);
  return values;
}

// |actual − expected| ≤ absolute + relative · |expected|; NaN only where NaN is expected.
inline testing::AssertionResult near(double actual, double expected, double absolute,
                                     double relative = 0) {
  if (std::isnan(expected) && std::isnan(actual)) return testing::AssertionSuccess();
  if (actual == expected) return testing::AssertionSuccess();
  if (std::abs(actual - expected) <= absolute + relative * std::abs(expected)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << actual << " instead of " << expected << ", off by " << actual - expected;
}

// Calls body() with each target in turn, widest first; the dispatch is as before at the end.
template <class Body>
void for_each_target(const Body& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if (target != HWY_SCALAR && (supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Expects that compute(), which returns a vector, gives the same bits with every target.
template <class Compute>
void expect_same_bits(const Compute& compute) {
  using Values = decltype(compute());
  Values widest;
  bool first = true;
  for_each_target([&] {
    const Values values = compute();
    if (first) widest = values;
    first = false;
    ASSERT_EQ(values.size(), widest.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], widest[i]) << "element " << i;
    }
  });
}

}  // namespace starling::testing_kernels
