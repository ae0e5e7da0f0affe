#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "golden.h"
#include "starling/error.h"
#include "starling/loss.h"

namespace starling {
namespace {

using golden::Floats;
using golden::MetricCase;
using testing::ElementsAre;

Floats evaluate(const MetricPtr& metric, const Shape& shape, const Floats& prediction,
                const Floats& labels) {
  const int64_t rows = static_cast<int64_t>(prediction.size()) / shape.elements();
  Floats values(static_cast<size_t>(rows), -77.0f);
  metric->evaluate(rows, shape, prediction.data(), labels.data(), values.data());
  return values;
}

class MetricGolden : public testing::TestWithParam<MetricCase> {};

TEST_P(MetricGolden, ValuesArePyTorchs) {
  const MetricCase& c = GetParam();
  EXPECT_EQ(c.metric->kind(), c.name);
  const Floats values = evaluate(c.metric, c.shape, c.prediction, c.labels);
  ASSERT_EQ(values.size(), c.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_FLOAT_EQ(values[i], c.values[i]) << "sample " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MetricGolden, testing::ValuesIn(golden::load_metric_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Accuracy, TakesTheLowestIndexOfEquals) {
  EXPECT_THAT(evaluate(accuracy(), {3}, {1, 2, 2, 1, 2, 2}, {1, 2}), ElementsAre(1, 0));
}

TEST(Accuracy, ReadsOneLogitByItsSign) {
  EXPECT_THAT(evaluate(accuracy(), {1}, {0.5f, -0.5f, 0.5f, -0.5f, 0}, {1, 0, 0, 1, 0}),
              ElementsAre(1, 1, 0, 0, 1));
}

TEST(Accuracy, CountsNanAsWrong) {
  EXPECT_THAT(evaluate(accuracy(), {2}, {NAN, NAN, NAN, 1}, {0, 0}), ElementsAre(0, 0));
  EXPECT_THAT(evaluate(accuracy(), {1}, {NAN, NAN}, {0, 1}), ElementsAre(0, 0));
}

TEST(Accuracy, CountsLabelsThatAreNoClassesAsWrong) {
  EXPECT_THAT(evaluate(accuracy(), {2}, {0, 1, 0, 1, 0, 1, 0, 1}, {2, -1, 0.5f, NAN}),
              ElementsAre(0, 0, 0, 0));
}

TEST(TopK, CountsTheFirstOfEqualsAsLarger) {
  EXPECT_THAT(evaluate(top_k(2), {3}, {5, 5, 5, 5, 5, 5, 5, 5, 5}, {0, 1, 2}),
              ElementsAre(1, 1, 0));
}

TEST(TopK, OfMoreThanAllClassesIsAlwaysRight) {
  EXPECT_THAT(evaluate(top_k(5), {3}, {3, 2, 1, 3, 2, 1}, {0, 2}), ElementsAre(1, 1));
}

TEST(TopK, RefusesKBelowOne) {
  EXPECT_THROW(top_k(0), Error);
  EXPECT_THROW(top_k(-2), Error);
}

TEST(AbsoluteError, IsTheMeanOverElements) {
  EXPECT_THAT(evaluate(absolute_error(), {2}, {1, -1, 4, 0}, {0, 2, 4, 0}), ElementsAre(2, 0));
}

// Else they would read labels that are not there, or those of other samples.
TEST(Metrics, RefuseLabelsThatAreNotTheirs) {
  for (const MetricPtr& metric : {accuracy(), top_k(5)}) {
    EXPECT_NO_THROW(metric->check({10}, {1}));
    EXPECT_THROW(metric->check({3}, {3}), Error);
  }
  EXPECT_NO_THROW(absolute_error()->check({3}, {3}));
  EXPECT_THROW(absolute_error()->check({10}, {1}), Error);
}

}  // namespace
}  // namespace starling
