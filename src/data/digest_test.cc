#include "data/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace starling::data {
namespace {

Dataset numbers(uint64_t count) {
  std::vector<float> features, labels;
  for (uint64_t i = 0; i < count; ++i) {
    features.insert(features.end(), {static_cast<float>(i), static_cast<float>(2 * i)});
    labels.push_back(static_cast<float>(i % 3));
  }
  return in_memory(features, {2}, labels);
}

TEST(Digest, IsTheSameForTheSameSamples) {
  for (const uint64_t count : {1, 2, 15, 16, 17, 1000})
    EXPECT_EQ(digest(numbers(count)), digest(numbers(count).cached())) << count;
}

TEST(Digest, TellsOtherSamplesLabelsAndNumbersOfThemApart) {
  const Dataset data = numbers(100);
  std::set<std::string> digests{digest(data), digest(data.take(99)), digest(data.take(1)),
                                digest(data.skip(1).take(99))};
  for (const uint64_t changed : {0, 99}) {
    digests.insert(digest(data.map([=](const Sample& sample) {
      if (sample.id == changed) sample.features[1] += 1;
    })));
    digests.insert(digest(data.map([=](const Sample& sample) {
      if (sample.id == changed) sample.label[0] += 1;
    })));
  }
  EXPECT_EQ(digests.size(), 8u);
}

TEST(Digest, ReadsNoMoreThanAFewSamples) {
  uint64_t reads = 0;
  digest(numbers(10'000).map([&](const Sample&) { ++reads; }));
  EXPECT_EQ(reads, kDigestSamples);
}

}  // namespace
}  // namespace starling::data
