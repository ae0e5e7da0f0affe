#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace starling {
namespace {

// Known answers of the reference implementation (Random123's kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DifferentPurposesAndSamplesDiffer) {
  std::set<uint32_t> seen;
  for (Draw purpose : {Draw::kShuffle, Draw::kDropout, Draw::kInitialize}) {
    for (uint32_t a : {0u, 1u}) {
      for (uint64_t b : {0ull, 1ull, 1ull << 40})
        seen.insert(RandomStream(7, purpose, a, b).bits(0));
    }
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(RandomStream, MomentsAreThoseOfTheDistributions) {
  const RandomStream stream(1, Draw::kInitialize);
  const int count = 200000;
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < count; ++i) {
    const double u = stream.uniform(static_cast<uint64_t>(i));
    const double n = stream.normal(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    normal_sum += n;
    normal_squares += n * n;
  }
  EXPECT_NEAR(sum / count, 0.5, 0.005);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal_sum / count, 0, 0.01);
  EXPECT_NEAR(normal_squares / count, 1, 0.02);
}

TEST(Permutation, VisitsEveryElementOnce) {
  for (uint64_t size : {1u, 2u, 3u, 7u, 64u, 65u, 1000u, 60000u}) {
    const Permutation permutation(size, 42, 3);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t element = permutation(i);
      ASSERT_LT(element, size);
      ASSERT_FALSE(seen[element]);
      seen[element] = true;
    }
  }
}

TEST(Permutation, DiffersByEpochAndSeedAndMixes) {
  const Permutation a(1000, 1, 0), b(1000, 1, 1), c(1000, 2, 0);
  int same_ab = 0, same_ac = 0, neighbours = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same_ab += a(i) == b(i);
    same_ac += a(i) == c(i);
    if (i > 0)
      neighbours +=
          std::llabs(static_cast<long long>(a(i)) - static_cast<long long>(a(i - 1))) == 1;
  }
  EXPECT_LT(same_ab, 10);
  EXPECT_LT(same_ac, 10);
  EXPECT_LT(neighbours, 10);
}

}  // namespace
}  // namespace starling
