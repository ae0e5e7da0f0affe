#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

constexpr uint64_t kSeed = 42;
constexpr uint32_t kOperator = 0xFEDCBA98;

RandomKey key_of(uint64_t seed) {
  return {.key = RandomStream(seed, Draw::kDropout).key(), .a = kOperator};
}

TEST(KernelsDropout, KeepsExactlyWhatTheStreamSays) {
  const std::vector<uint64_t> samples = {0, 7, 0x123456789ABCDEF0u};
  for_each_target([&] {
    for (const float rate : {0.0f, 0.1f, 0.3f, 0.5f, 0.99f}) {
      for (const int64_t elements : kSizes) {
        const std::vector<float> x = random_floats(3 * elements, 1, 1, 2);
        std::vector<float> y(x.size()), in_place = x;
        dropout(3, elements, rate, key_of(kSeed), samples.data(), x.data(), y.data());
        dropout(3, elements, rate, key_of(kSeed), samples.data(), in_place.data(), in_place.data());
        for (int64_t r = 0; r < 3; ++r) {
          const RandomStream stream(kSeed, Draw::kDropout, kOperator, samples[r]);
          for (int64_t e = 0; e < elements; ++e) {
            const int64_t i = r * elements + e;
            const bool kept = stream.uniform(static_cast<uint64_t>(e)) >= rate;
            ASSERT_EQ(y[i], kept ? x[i] * (1 / (1 - rate)) : 0.0f)
                << "element " << e << " of " << elements;
          }
        }
        ASSERT_EQ(in_place, y);
      }
    }
  });
}

TEST(KernelsDropout, ThresholdIsExactWhereTheUniformMeetsTheRate) {
  const RandomStream stream(kSeed, Draw::kDropout, kOperator, 5);
  const uint64_t sample = 5;
  for_each_target([&] {
    for (uint64_t e = 0; e < 64; ++e) {
      const std::vector<float> x(64, 1.0f);
      std::vector<float> at(64), above(64);
      const float rate = stream.uniform(e);
      dropout(1, 64, rate, key_of(kSeed), &sample, x.data(), at.data());
      dropout(1, 64, std::nextafter(rate, 1.0f), key_of(kSeed), &sample, x.data(), above.data());
      EXPECT_NE(at[e], 0.0f);
      EXPECT_EQ(above[e], 0.0f);
    }
  });
}

TEST(KernelsDropout, KeepsAboutOneMinusRateAndTheMean) {
  const int64_t n = 1 << 18;
  const uint64_t sample = 3;
  const std::vector<float> x(n, 1.0f);
  std::vector<float> y(n);
  for (const float rate : {0.1f, 0.5f, 0.8f}) {
    dropout(1, n, rate, key_of(kSeed), &sample, x.data(), y.data());
    const double kept = static_cast<double>(n - std::count(y.begin(), y.end(), 0.0f)) / n;
    EXPECT_NEAR(kept, 1 - rate, 0.004);  // four standard deviations
  }
}

TEST(KernelsDropout, RateOneDropsEverything) {
  const uint64_t sample = 3;
  const std::vector<float> x(100, 1.0f);
  std::vector<float> y(100, 9.0f);
  for_each_target([&] {
    dropout(1, 100, 1.0f, key_of(kSeed), &sample, x.data(), y.data());
    EXPECT_EQ(y, std::vector<float>(100, 0.0f));
  });
}

}  // namespace
}  // namespace starling
