#include "engine/moments_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/random.h"
#include "golden.h"
#include "starling/error.h"

namespace starling {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

Graph batch_normalised(const Shape& input, float momentum = 0.1f) {
  Graph graph;
  graph.add(std::make_shared<BatchNormOp>(BatchNormOp::Options{.momentum = momentum}),
            {graph.add_input(input)}, "norm");
  return graph;
}

// Mean and sum of squared deviations per channel of values {count, channels}.
Doubles moments_of(const Doubles& values, size_t channels) {
  const size_t count = values.size() / channels;
  Doubles result(2 * channels, 0.0);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < count; ++i) result[c] += values[i * channels + c];
    result[c] /= static_cast<double>(count);
    for (size_t i = 0; i < count; ++i) {
      const double deviation = values[i * channels + c] - result[c];
      result[channels + c] += deviation * deviation;
    }
  }
  return result;
}

Doubles random_values(size_t count, double centre) {
  const RandomStream stream(3, Draw::kSynthetic);
  Doubles values(count);
  for (size_t i = 0; i < count; ++i) values[i] = centre + stream.uniform(i);
  return values;
}

// The running statistics after one step over `rows[i]` rows in shard i.
Floats after_step(const MomentsLayout& layout, const Doubles& values, size_t per_row,
                  size_t channels, const std::vector<int64_t>& rows) {
  std::vector<Doubles> moments;
  std::vector<const double*> pointers;
  auto from = values.begin();
  for (const int64_t count : rows) {
    const auto to = from + static_cast<std::ptrdiff_t>(static_cast<size_t>(count) * per_row);
    moments.push_back(moments_of(Doubles(from, to), channels));
    from = to;
  }
  for (const Doubles& shard : moments) pointers.push_back(shard.data());
  Floats statistics(layout.size());
  layout.initialize(statistics);
  layout.commit(pointers, rows, statistics);
  return statistics;
}

TEST(MomentsLayout, StatisticsStartAtZeroAndOne) {
  const MomentsLayout layout(batch_normalised({3}));
  Floats statistics(layout.size(), 7.0f);
  layout.initialize(statistics);
  EXPECT_EQ(statistics, (Floats{0, 0, 0, 1, 1, 1}));
}

TEST(MomentsLayout, BatchesOfAShardMergeToTheMomentsOfAllTheirSamples) {
  const MomentsLayout layout(batch_normalised({5, 2}));
  const Doubles values = random_values(7 * 10, 3);
  const Doubles expected = moments_of(values, 2);
  Doubles merged = moments_of(Doubles(values.begin(), values.begin() + 20), 2);
  layout.merge(merged.data(), 2, moments_of(Doubles(values.begin() + 20, values.end()), 2).data(),
               5);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(merged[i], expected[i], 1e-12);
}

TEST(MomentsLayout, LayersLieOneAfterAnother) {
  Graph graph;
  const auto norm = std::make_shared<BatchNormOp>(BatchNormOp::Options{});
  const ValueId x = graph.add(norm, {graph.add_input({4, 4, 3})}, "first");
  graph.add(norm, {graph.add(std::make_shared<ReshapeOp>(std::nullopt), {x})}, "second");
  const MomentsLayout layout(graph);
  ASSERT_EQ(layout.entries().size(), 2u);
  EXPECT_EQ(layout.find("first").offset, 0u);
  EXPECT_EQ(layout.find("first").spec.count_per_sample, 16);
  EXPECT_EQ(layout.find("second").offset, 6u);
  EXPECT_EQ(layout.find("second").spec.channels, 48);
  EXPECT_EQ(layout.size(), 6u + 96u);
  EXPECT_THROW(layout.find("third"), Error);
}

TEST(MomentsLayout, ShardsTogetherAreTheWhole) {
  constexpr size_t kRows = 24, kPixels = 6, kChannels = 3;
  const MomentsLayout layout(batch_normalised({2, 3, 3}));
  // A centre far from zero: sums of squares would lose what deviations keep.
  for (const double centre : {0.0, 1000.0}) {
    const Doubles values = random_values(kRows * kPixels * kChannels, centre);
    const Floats whole = after_step(layout, values, kPixels * kChannels, kChannels, {kRows});
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{12, 12},
                                             {8, 8, 8},
                                             {1, 23},
                                             {5, 7, 1, 11},
                                             {3, 3, 3, 3, 3, 3, 3, 3},
                                             std::vector<int64_t>(kRows, 1)}) {
      const Floats parts = after_step(layout, values, kPixels * kChannels, kChannels, rows);
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(parts[i], whole[i], 1e-6f * std::abs(whole[i]))
            << rows.size() << " shards, element " << i;
      }
    }
  }
}

TEST(MomentsLayout, MomentumIsTheWeightOfTheNewBatch) {
  const MomentsLayout layout(batch_normalised({1}, 0.25f));
  const Floats statistics = after_step(layout, {2, 4, 6, 8}, 1, 1, {4});
  EXPECT_FLOAT_EQ(statistics[0], 0.75f * 0 + 0.25f * 5);
  EXPECT_FLOAT_EQ(statistics[1], 0.75f * 1 + 0.25f * 20 / 3);
}

TEST(MomentsLayout, OneValueHasNoVariance) {
  const MomentsLayout layout(batch_normalised({1}, 0.5f));
  EXPECT_EQ(after_step(layout, {8}, 1, 1, {1}), (Floats{4, 0.5f}));
}

// A batch normalisation of PyTorch's: its statistics after a step, taken whole and by single rows.
class MomentsGolden : public testing::TestWithParam<golden::OperatorCase> {};

TEST_P(MomentsGolden, RunningStatisticsArePyTorchs) {
  const golden::OperatorCase& c = GetParam();
  Graph graph;
  graph.add(c.op, {graph.add_input(c.input_shapes[0])}, "norm");
  const MomentsLayout layout(graph);
  const size_t channels = c.batch_mean.size();
  const size_t per_row = static_cast<size_t>(c.input_shapes[0].elements());
  Floats before = c.running_mean, after = c.running_mean_after;
  before.insert(before.end(), c.running_variance.begin(), c.running_variance.end());
  after.insert(after.end(), c.running_variance_after.begin(), c.running_variance_after.end());

  Doubles golden_moments(c.batch_mean.begin(), c.batch_mean.end());
  golden_moments.insert(golden_moments.end(), c.batch_m2.begin(), c.batch_m2.end());
  std::vector<Doubles> by_row;
  for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
    const auto from = c.inputs[0].begin() + static_cast<std::ptrdiff_t>(row * per_row);
    by_row.push_back(
        moments_of(Doubles(from, from + static_cast<std::ptrdiff_t>(per_row)), channels));
  }
  const auto check = [&](const std::vector<Doubles>& shards, const std::vector<int64_t>& rows) {
    std::vector<const double*> pointers;
    for (const Doubles& shard : shards) pointers.push_back(shard.data());
    Floats statistics = before;
    layout.commit(pointers, rows, statistics);
    for (size_t i = 0; i < after.size(); ++i)
      EXPECT_NEAR(statistics[i], after[i], 2e-6f * (1 + std::abs(after[i])));
  };
  check({golden_moments}, {c.rows});
  check(by_row, std::vector<int64_t>(static_cast<size_t>(c.rows), 1));
}

std::vector<golden::OperatorCase> cases_with_statistics() {
  std::vector<golden::OperatorCase> cases;
  for (golden::OperatorCase& c : golden::load_operator_cases()) {
    if (!c.running_mean_after.empty()) cases.push_back(std::move(c));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(BatchNorms, MomentsGolden, testing::ValuesIn(cases_with_statistics()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling
