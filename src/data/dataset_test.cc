#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "data/test_files.h"
#include "starling/data.h"

namespace starling::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(InMemory, GivesBackWhatItWasGiven) {
  const Dataset data = in_memory({1, 2, 3, 4}, {2}, {5, 6, 7, 8, 9, 10}, {3});
  EXPECT_EQ(data.size(), 2u);
  EXPECT_TRUE(data.cheap());
  const Samples samples = read_all(data);
  EXPECT_THAT(samples.features, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(samples.labels, ElementsAre(5, 6, 7, 8, 9, 10));
}

TEST(InMemory, RefusesSizesThatDoNotFit) {
  EXPECT_THROW(in_memory({1, 2, 3}, {2}, {1}), Error);
  EXPECT_THROW(in_memory({1, 2, 3, 4}, {2}, {1}), Error);
  EXPECT_THROW(in_memory({1, 2}, {2}, {1, 2, 3}, {2}), Error);
  EXPECT_THROW(in_memory({}, {2}, {}), Error);
}

TEST(InMemory, RefusesValuesThatAreNotFiniteWithTheSamplesNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> features(300, 1.0f), labels(100, 0.0f);
  features[3 * 77 + 1] = infinity;
  EXPECT_THAT(refusal([&] { in_memory(features, {3}, labels); }),
              HasSubstr("sample 77 of 100 samples of 3 in memory has the value inf as feature 1"));
  features[3 * 77 + 1] = 1;
  labels[99] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal([&] { in_memory(features, {3}, labels); }), HasSubstr("sample 99"));
}

TEST(Dataset, WithoutASourceThrows) {
  const Dataset none;
  EXPECT_FALSE(none);
  EXPECT_THROW(none.size(), Error);
  EXPECT_THROW(none.map([](const Sample&) {}), Error);
}

TEST(Dataset, RangeTakeAndSkipNumberTheirSamplesAnew) {
  const Dataset data = numbered(10);
  EXPECT_THAT(read_all(data.range(3, 2)).labels, ElementsAre(3, 4));
  EXPECT_THAT(read_all(data.take(2)).features, ElementsAre(0, 10));
  EXPECT_THAT(read_all(data.skip(8)).labels, ElementsAre(8, 9));
  EXPECT_THAT(read_all(data.skip(5).take(2)).labels, ElementsAre(5, 6));
  EXPECT_TRUE(data.skip(5).cheap());
  float feature, label;
  EXPECT_THROW(data.take(2).read(std::vector<uint64_t>{2}, &feature, &label), Error);
}

TEST(Dataset, RangeRefusesWhatIsNotThere) {
  const Dataset data = numbered(10);
  EXPECT_THROW(data.take(11), Error);
  EXPECT_THROW(data.take(0), Error);
  EXPECT_THROW(data.skip(10), Error);
  EXPECT_THROW(data.skip(11), Error);
  EXPECT_THROW(data.range(5, std::numeric_limits<uint64_t>::max()), Error);
}

TEST(Dataset, LongReadsThroughARangeKeepTheirOrder) {
  const std::vector<float> labels = read_all(numbered(1000).skip(1)).labels;
  for (size_t i = 0; i < labels.size(); ++i) ASSERT_EQ(labels[i], static_cast<float>(i + 1));
}

TEST(Dataset, SplitIsDisjointAndComplete) {
  const auto [first, second] = numbered(1000).split(0.2, 7);
  EXPECT_EQ(first.size(), 800u);
  EXPECT_EQ(second.size(), 200u);
  std::vector<int> seen(1000);
  for (const Dataset& part : {first, second}) {
    for (const float label : read_all(part).labels) ++seen[static_cast<size_t>(label)];
  }
  EXPECT_THAT(seen, Each(1));
}

TEST(Dataset, SplitDependsOnTheSeedAlone) {
  const Dataset data = numbered(100);
  EXPECT_EQ(read_all(data.split(0.5, 1).second).labels, read_all(data.split(0.5, 1).second).labels);
  EXPECT_NE(read_all(data.split(0.5, 1).second).labels, read_all(data.split(0.5, 2).second).labels);
}

TEST(Dataset, SplitLeavesNoPartEmpty) {
  EXPECT_EQ(numbered(10).split(0.001, 1).second.size(), 1u);
  EXPECT_EQ(numbered(10).split(0.999, 1).first.size(), 1u);
  EXPECT_THROW(numbered(10).split(0, 1), Error);
  EXPECT_THROW(numbered(10).split(1, 1), Error);
  EXPECT_THROW(numbered(10).split(std::nan(""), 1), Error);
  EXPECT_THROW(numbered(1).split(0.5, 1), Error);
}

TEST(Dataset, MapChangesValuesInPlace) {
  const Dataset data = numbered(4).skip(1).map([](const Sample& sample) {
    sample.features[0] += static_cast<float>(sample.id);
    sample.label[0] = -sample.label[0];
  });
  EXPECT_THAT(read_all(data).features, ElementsAre(10, 21, 32));
  EXPECT_THAT(read_all(data).labels, ElementsAre(-1, -2, -3));
  EXPECT_FALSE(data.cheap());
}

TEST(Dataset, MapMayChangeTheShapeOfFeaturesAgainAndAgain) {
  const auto twice = [](const Sample& sample, std::span<float> features) {
    for (size_t i = 0; i < features.size(); ++i) features[i] = sample.features[i / 2];
  };
  const Dataset data = numbered(2).map({2}, twice).map({2, 2}, twice);
  EXPECT_EQ(data.feature_shape(), (Shape{2, 2}));
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(read_all(data).features, ElementsAre(0, 0, 0, 0, 10, 10, 10, 10));
    EXPECT_THAT(read_all(data).labels, ElementsAre(0, 1));
  }
}

TEST(Dataset, MapThatMakesANumberInfiniteIsRefused) {
  const Dataset data =
      numbered(4).map([](const Sample& sample) { sample.features[0] = 1 / (2 - sample.label[0]); });
  EXPECT_THAT(refusal([&] { read_all(data); }), HasSubstr("sample 2 of map of"));
  const Dataset reshaped = numbered(4).map({1}, [](const Sample& sample, std::span<float> out) {
    out[0] = std::sqrt(2 - sample.label[0]);
  });
  EXPECT_THAT(refusal([&] { read_all(reshaped); }), HasSubstr("sample 3 of map to 1 of"));
}

TEST(Dataset, IsReadFromManyThreadsAtOnce) {
  const Dataset data = numbered(500).split(0.5, 3).first.map(
      {2},
      [](const Sample& sample, std::span<float> out) { out[0] = out[1] = sample.features[0]; });
  const Samples expected = read_all(data);
  std::vector<Samples> results(4);
  std::vector<std::thread> threads;
  for (Samples& result : results) {
    threads.emplace_back([&] {
      for (int again = 0; again < 20; ++again) result = read_all(data);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Samples& result : results) EXPECT_EQ(result.features, expected.features);
}

TEST(Dataset, CachedHoldsTheSameSamples) {
  const Dataset data = synthetic({.samples = 100, .features = {3, 2}});
  const Dataset cached = data.cached();
  EXPECT_FALSE(data.cheap());
  EXPECT_TRUE(cached.cheap());
  EXPECT_EQ(cached.feature_shape(), (Shape{3, 2}));
  EXPECT_EQ(read_all(cached).features, read_all(data).features);
}

TEST(Synthetic, AnySampleIsComputedOnItsOwn) {
  const Dataset data = synthetic({.samples = 1000, .features = {7}, .classes = 4, .seed = 9});
  const Samples all = read_all(data);
  std::vector<float> features(7), label(1);
  data.read(std::vector<uint64_t>{731}, features.data(), label.data());
  EXPECT_TRUE(std::equal(features.begin(), features.end(), all.features.begin() + 731 * 7));
  EXPECT_EQ(label[0], 731 % 4);
  const Dataset other = synthetic({.samples = 1000, .features = {7}, .classes = 4, .seed = 10});
  EXPECT_NE(read_all(other).features, all.features);
}

// The nearest of the class means, found from one half, tells the classes of the other half.
TEST(Synthetic, CanBeLearned) {
  const uint32_t classes = 5;
  const Dataset data = synthetic({.samples = 2000, .features = {32}, .classes = classes});
  const Samples train = read_all(data.take(1000)), test = read_all(data.skip(1000));
  std::vector<double> centres(classes * 32);
  for (size_t i = 0; i < 1000; ++i) {
    for (size_t j = 0; j < 32; ++j) {
      centres[static_cast<size_t>(train.labels[i]) * 32 + j] += train.features[i * 32 + j] / 200;
    }
  }
  int right = 0;
  for (size_t i = 0; i < 1000; ++i) {
    std::vector<double> distances(classes);
    for (size_t k = 0; k < classes; ++k) {
      for (size_t j = 0; j < 32; ++j) {
        distances[k] += std::pow(test.features[i * 32 + j] - centres[k * 32 + j], 2);
      }
    }
    const auto nearest = std::min_element(distances.begin(), distances.end());
    right += static_cast<float>(nearest - distances.begin()) == test.labels[i];
  }
  EXPECT_GT(right, 900);
}

TEST(Synthetic, RegressionLabelsAreAWeightedSum) {
  const Dataset data = synthetic_regression({.samples = 100, .features = {1}, .noise = 0});
  const Samples samples = read_all(data);
  const float weight = samples.labels[0] / samples.features[0];
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(samples.labels[i], weight * samples.features[i], 1e-5);
  }
  const Info wide = info(synthetic_regression({.samples = 1000, .features = {64}}));
  EXPECT_GT(wide.label_max, 1);
  EXPECT_LT(wide.label_max, 10);
}

TEST(Synthetic, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(synthetic({.samples = 0}), Error);
  EXPECT_THROW(synthetic({.classes = 0}), Error);
  EXPECT_THROW(synthetic({.noise = -1}), Error);
  EXPECT_THROW(synthetic({.features = {1 << 20}, .classes = 1 << 20}), Error);
  EXPECT_THROW(synthetic_regression({.noise = std::numeric_limits<float>::infinity()}), Error);
}

TEST(Info, TellsCountsShapesRangesAndClasses) {
  const Info found = info(in_memory({0, 1, 2, 3, 4, 8}, {2}, {1, 0, 1}));
  EXPECT_EQ(found.samples, 3u);
  EXPECT_EQ(found.feature_shape, Shape{2});
  EXPECT_EQ(found.feature_min, 0);
  EXPECT_EQ(found.feature_max, 8);
  EXPECT_EQ(found.feature_mean, 3);
  EXPECT_THAT(found.class_counts, ElementsAre(1, 2));
}

TEST(Info, LabelsThatAreNotClassesAreNotCounted) {
  EXPECT_TRUE(info(in_memory({1, 2}, {1}, {0.5f, 1})).class_counts.empty());
  EXPECT_TRUE(info(in_memory({1, 2}, {1}, {0, -1})).class_counts.empty());
  EXPECT_TRUE(info(in_memory({1}, {1}, {0, 1}, {2})).class_counts.empty());
  EXPECT_EQ(info(in_memory({1, 2}, {1}, {0.5f, 2})).label_max, 2);
}

}  // namespace
}  // namespace starling::data
