#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "error_of.h"
#include "golden.h"
#include "starling/error.h"
#include "starling/loss.h"

namespace starling {
namespace {

using golden::Floats;
using golden::LossCase;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string label_refusal(const LossPtr& loss, const Shape& shape, int64_t rows,
                          const Floats& labels, uint64_t first_sample) {
  return refusal([&] { loss->check_labels(rows, shape, labels.data(), first_sample); });
}

class LossGolden : public testing::TestWithParam<LossCase> {};

TEST_P(LossGolden, LossesArePyTorchs) {
  const LossCase& c = GetParam();
  Floats losses(c.losses.size(), -77.0f);
  c.loss->forward(c.rows, c.shape, c.prediction.data(), c.labels.data(), losses.data());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], c.losses[i], 1e-6f * std::abs(c.losses[i]) + 1e-30f) << "sample " << i;
  }
}

TEST_P(LossGolden, GradientsArePyTorchsAndOverwrite) {
  const LossCase& c = GetParam();
  Floats gradient(c.grad_prediction.size(), -77.0f);
  c.loss->backward(c.rows, c.shape, c.prediction.data(), c.labels.data(), c.scale, gradient.data());
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(gradient[i], c.grad_prediction[i], 1e-7f) << "element " << i;
  }
}

// Near zero: far out f32 has no digits left for the difference.
TEST_P(LossGolden, GradientsEqualCentralDifferences) {
  const LossCase& c = GetParam();
  constexpr float kStep = 0x1p-7f;
  Floats prediction;
  for (float value : c.prediction) prediction.push_back(std::clamp(value, -3.0f, 3.0f));
  Floats gradient(prediction.size()), losses(c.losses.size());
  c.loss->backward(c.rows, c.shape, prediction.data(), c.labels.data(), c.scale, gradient.data());
  const auto total = [&] {
    c.loss->forward(c.rows, c.shape, prediction.data(), c.labels.data(), losses.data());
    return double{c.scale} * std::accumulate(losses.begin(), losses.end(), 0.0);
  };
  for (size_t i = 0; i < prediction.size(); ++i) {
    const float middle = prediction[i], above = middle + kStep, below = middle - kStep;
    prediction[i] = above;
    const double higher = total();
    prediction[i] = below;
    const double lower = total();
    prediction[i] = middle;
    EXPECT_NEAR(gradient[i], (higher - lower) / (double{above} - below), 1e-4) << "element " << i;
  }
}

TEST_P(LossGolden, AcceptsItsLabels) {
  const LossCase& c = GetParam();
  EXPECT_EQ(c.rows * c.loss->label_shape(c.shape).elements(),
            static_cast<int64_t>(c.labels.size()));
  c.loss->check_labels(c.rows, c.shape, c.labels.data(), 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, LossGolden, testing::ValuesIn(golden::load_loss_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(SoftmaxCrossEntropy, TakesOneLabelForAVectorOfLogits) {
  EXPECT_EQ(softmax_cross_entropy()->label_shape({10}), (Shape{1}));
  EXPECT_THAT(refusal([] { softmax_cross_entropy()->label_shape({4, 10}); }), HasSubstr("4×10"));
  EXPECT_THAT(refusal([] { softmax_cross_entropy()->label_shape({1}); }),
              HasSubstr("binary_cross_entropy"));
  EXPECT_THAT(refusal([] { softmax_cross_entropy()->label_shape({}); }), HasSubstr("scalar"));
}

TEST(SoftmaxCrossEntropy, NamesTheSampleWhoseLabelIsOutOfRange) {
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 3, {0, 12, 9}, 4710),
              HasSubstr("label 12 of sample 4711 is out of range: the model has 10 classes "
                        "(0 … 9)"));
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 1, {10}, 0), HasSubstr("label 10"));
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 1, {-1}, 0), HasSubstr("label -1"));
}

TEST(SoftmaxCrossEntropy, RefusesLabelsThatAreNoClasses) {
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 2, {1, 2.5f}, 7),
              HasSubstr("label 2.5 of sample 8 is not a class"));
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 1, {kNan}, 0), HasSubstr("nan"));
  EXPECT_THAT(label_refusal(softmax_cross_entropy(), {10}, 1, {kInfinity}, 0), HasSubstr("inf"));
}

TEST(SoftmaxCrossEntropy, DoesNotHideNan) {
  const Floats prediction{1, kNan, 0}, label{0};
  float loss = 0;
  softmax_cross_entropy()->forward(1, {3}, prediction.data(), label.data(), &loss);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(BinaryCrossEntropy, TakesLabelsBetweenZeroAndOneInThePredictionsShape) {
  EXPECT_EQ(binary_cross_entropy()->label_shape({2, 3}), (Shape{2, 3}));
  EXPECT_THAT(label_refusal(binary_cross_entropy(), {2}, 2, {0, 1, 0.5f, 2}, 20),
              HasSubstr("label 2 of sample 21 is out of range"));
  EXPECT_THAT(label_refusal(binary_cross_entropy(), {1}, 1, {-0.5f}, 0), HasSubstr("-0.5"));
  EXPECT_THAT(label_refusal(binary_cross_entropy(), {1}, 1, {kNan}, 0), HasSubstr("nan"));
}

TEST(Loss, SaysWhatIsMeasuredBesideIt) {
  const auto measured = [](const LossPtr& loss, const Shape& prediction) {
    std::vector<std::string> kinds;
    for (const MetricPtr& metric : loss->default_metrics(prediction))
      kinds.push_back(metric->kind());
    return kinds;
  };
  EXPECT_THAT(measured(softmax_cross_entropy(), {5}), testing::ElementsAre("accuracy"));
  EXPECT_THAT(measured(binary_cross_entropy(), {1}), testing::ElementsAre("accuracy"));
  EXPECT_THAT(measured(binary_cross_entropy(), {3}), testing::IsEmpty()) << "no classes";
  EXPECT_THAT(measured(mean_squared_error(), {1}), testing::IsEmpty());
}

TEST(MeanSquaredError, RefusesLabelsThatAreNotFinite) {
  EXPECT_EQ(mean_squared_error()->label_shape({2, 3}), (Shape{2, 3}));
  const Floats fine{-1e30f, 5};
  mean_squared_error()->check_labels(1, {2}, fine.data(), 0);
  EXPECT_THAT(label_refusal(mean_squared_error(), {2}, 2, {1, 2, 3, kNan}, 30),
              HasSubstr("sample 31 is not a finite number"));
  EXPECT_THAT(label_refusal(mean_squared_error(), {1}, 1, {-kInfinity}, 0), HasSubstr("inf"));
}

}  // namespace
}  // namespace starling
