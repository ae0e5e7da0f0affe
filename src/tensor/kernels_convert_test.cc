#include <bit>
#include <limits>

#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

// The nearest of the two neighbours with 16 bits, the even one of two as near: worked out from
// distances, which are exact in f64.
uint16_t naive_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto down = static_cast<uint16_t>(bits >> 16);
  const auto up = static_cast<uint16_t>(down + 1);
  const auto distance = [&](uint16_t half) {
    return std::abs(double{std::bit_cast<float>(uint32_t{half} << 16)} - x);
  };
  if (distance(down) < distance(up)) return down;
  if (distance(up) < distance(down)) return up;
  return down % 2 == 0 ? down : up;
}

TEST(KernelsConvert, Bf16RoundsToNearestEvenAtEverySize) {
  for_each_target([] {
    for (const int64_t n : kSizes) {
      std::vector<float> x = random_floats(n, 1, -100, 100);
      for (size_t i = 0; i < x.size(); i += 3) {  // ties
        x[i] = std::bit_cast<float>((std::bit_cast<uint32_t>(x[i]) & 0xFFFF0000u) | 0x8000u);
      }
      std::vector<uint16_t> halves(x.size());
      std::vector<float> back(x.size()), rounded(x.size()), in_place = x;
      to_bf16(n, x.data(), halves.data());
      from_bf16(n, halves.data(), back.data());
      round_bf16(n, x.data(), rounded.data());
      round_bf16(n, in_place.data(), in_place.data());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(halves[i], naive_bf16(x[i])) << x[i];
        ASSERT_EQ(back[i], std::bit_cast<float>(uint32_t{halves[i]} << 16));
      }
      ASSERT_EQ(rounded, back);
      ASSERT_EQ(in_place, back);
    }
  });
}

TEST(KernelsConvert, Bf16KeepsNanAndInfinityAndOverflowsToInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  // A NaN whose payload lies in the bits that are cut off, and one that rounding would carry away.
  const std::vector<float> x = {infinity,
                                -infinity,
                                std::numeric_limits<float>::max(),
                                std::bit_cast<float>(0x7F800001u),
                                std::bit_cast<float>(0xFFFFFFFFu),
                                -0.0f,
                                1e-45f};
  for_each_target([&] {
    std::vector<uint16_t> halves(x.size());
    std::vector<float> back(x.size()), rounded(x.size());
    to_bf16(7, x.data(), halves.data());
    from_bf16(7, halves.data(), back.data());
    round_bf16(7, x.data(), rounded.data());
    EXPECT_EQ(back[0], infinity);
    EXPECT_EQ(back[1], -infinity);
    EXPECT_EQ(back[2], infinity);
    EXPECT_TRUE(std::isnan(back[3]) && std::isnan(back[4]));
    EXPECT_TRUE(std::isnan(rounded[3]) && std::isnan(rounded[4]));
    EXPECT_TRUE(back[5] == 0 && std::signbit(back[5]));
    EXPECT_EQ(back[6], 0.0f);
  });
}

TEST(KernelsConvert, BytesAreScaled) {
  for_each_target([] {
    for (const int64_t n : kSizes) {
      std::vector<uint8_t> bytes(static_cast<size_t>(n));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
      std::vector<float> x(bytes.size());
      from_u8(n, 1.0f / 255, bytes.data(), x.data());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(x[i], static_cast<float>(bytes[i]) * (1.0f / 255));
    }
  });
}

TEST(KernelsConvert, AllFiniteFindsOneBadValueAnywhere) {
  for_each_target([] {
    for (const int64_t n : {0, 1, 7, 16, 17, 40, 67}) {
      std::vector<float> x = random_floats(n, 2);
      EXPECT_TRUE(all_finite(n, x.data()));
      for (float& v : x) {
        const float before = v;
        for (const float bad : {std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(), std::nanf("")}) {
          v = bad;
          EXPECT_FALSE(all_finite(n, x.data()));
        }
        v = std::numeric_limits<float>::max();
        EXPECT_TRUE(all_finite(n, x.data()));
        v = before;
      }
    }
  });
}

}  // namespace
}  // namespace starling
