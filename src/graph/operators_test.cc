#include "graph/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::HasSubstr;
using Mode = Pool2dOp::Mode;

Shape infer(const Operator& op, std::vector<Shape> inputs) { return op.infer(inputs); }

Conv2dOp conv(int64_t filters, Window window, int64_t groups = 1) {
  return Conv2dOp({.filters = filters, .window = window, .groups = groups});
}

constexpr Window kSquare3{.kernel_h = 3, .kernel_w = 3};

TEST(Window, SamePaddingPutsTheOddOneAtTheBottomAndRight) {
  const Window window{.kernel_h = 4, .kernel_w = 3, .stride_w = 2, .same = true};
  const Window resolved = window.resolved(5, 6);
  EXPECT_FALSE(resolved.same);
  EXPECT_EQ(resolved.pad_top, 1);
  EXPECT_EQ(resolved.pad_bottom, 2);
  EXPECT_EQ(resolved.pad_left, 0);
  EXPECT_EQ(resolved.pad_right, 1);
}

TEST(Window, SamePaddingKeepsCeilOfSizeOverStride) {
  for (int64_t size = 1; size <= 9; ++size) {
    for (int64_t kernel = 1; kernel <= 5; ++kernel) {
      for (int64_t stride = 1; stride <= 4; ++stride) {
        const Window window{.kernel_h = kernel,
                            .kernel_w = kernel,
                            .stride_h = stride,
                            .stride_w = stride,
                            .same = true};
        const Window resolved = window.resolved(size, size);
        EXPECT_EQ(resolved.out_h(size), (size + stride - 1) / stride);
        EXPECT_EQ(resolved.out_w(size), (size + stride - 1) / stride);
        EXPECT_LE(resolved.pad_bottom - resolved.pad_top, 1);
      }
    }
  }
}

TEST(Window, WithoutSameIsItsOwnResolution) {
  const Window window{.kernel_h = 3, .pad_top = 2};
  EXPECT_EQ(window.resolved(9, 9).pad_top, 2);
  EXPECT_EQ(window.out_h(9), 9);
  EXPECT_LT(Window{.kernel_h = 3}.out_h(1), 1);
  EXPECT_LT((Window{.kernel_w = 5, .stride_w = 3}.out_w(3)), 1);
}

TEST(Dense, MapsTheLastAxis) {
  const DenseOp op({.units = 10});
  EXPECT_EQ(infer(op, {{7}}), (Shape{10}));
  EXPECT_EQ(infer(op, {{2, 3, 7}}), (Shape{2, 3, 10}));
}

TEST(Dense, DescribesItsParameters) {
  const std::vector<Shape> input{{2, 7}};
  const auto specs = DenseOp({.units = 3, .initializer = "he_normal"}).parameters(input);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].name, "weight");
  EXPECT_EQ(specs[0].shape, (Shape{3, 7}));
  EXPECT_EQ(specs[0].initializer, "he_normal");
  EXPECT_EQ(specs[0].fan_in, 7);
  EXPECT_EQ(specs[0].fan_out, 3);
  EXPECT_TRUE(specs[0].decay);
  EXPECT_EQ(specs[1].name, "bias");
  EXPECT_EQ(specs[1].shape, (Shape{3}));
  EXPECT_EQ(specs[1].initializer, "zeros");
  EXPECT_FALSE(specs[1].decay);
  EXPECT_EQ(DenseOp({.units = 3, .bias = false}).parameters(input).size(), 1u);
}

TEST(Dense, CountsMultiplicationsAndAdditions) {
  const std::vector<Shape> input{{2, 7}};
  EXPECT_EQ(DenseOp({.units = 3}).flops(input), 2 * 3 * (2 * 7 + 1));
  EXPECT_EQ(DenseOp({.units = 3, .bias = false}).flops(input), 2 * 3 * 2 * 7);
}

TEST(Dense, RefusesBadOptionsAndInputs) {
  EXPECT_THAT(refusal([] { DenseOp({.units = 0}); }),
              testing::AllOf(HasSubstr("dense: units is 0"), HasSubstr("1 …")));
  EXPECT_THAT(refusal([] { DenseOp({.units = -3}); }), HasSubstr("units is -3"));
  const DenseOp op({.units = 3});
  EXPECT_THAT(refusal([&] { infer(op, {Shape{}}); }), HasSubstr("scalar"));
  EXPECT_THAT(refusal([&] { op.parameters(std::vector<Shape>{Shape{}}); }), HasSubstr("scalar"));
  EXPECT_THAT(refusal([&] { infer(op, {}); }), HasSubstr("given 0"));
  EXPECT_THAT(refusal([&] { infer(op, {{2}, {2}}); }), HasSubstr("given 2"));
}

TEST(Conv2d, InfersShapes) {
  EXPECT_EQ(infer(conv(8, kSquare3), {{28, 27, 1}}), (Shape{26, 25, 8}));
  EXPECT_EQ(
      infer(conv(8, {.kernel_h = 3, .kernel_w = 5, .stride_h = 2, .same = true}), {{9, 9, 4}}),
      (Shape{5, 9, 8}));
  EXPECT_EQ(infer(conv(6, kSquare3, 2), {{5, 5, 4}}), (Shape{3, 3, 6}));
}

TEST(Conv2d, FansCountOneGroup) {
  const std::vector<Shape> input{{8, 8, 4}};
  const Conv2dOp op = conv(6, {.kernel_h = 3, .kernel_w = 5}, 2);
  const auto specs = op.parameters(input);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].shape, (Shape{6, 2, 3, 5}));
  EXPECT_EQ(specs[0].fan_in, 2 * 15);
  EXPECT_EQ(specs[0].fan_out, 3 * 15);
  EXPECT_TRUE(specs[0].decay);
  EXPECT_EQ(specs[1].shape, (Shape{6}));
  EXPECT_EQ(specs[1].initializer, "zeros");
  EXPECT_FALSE(specs[1].decay);
  EXPECT_EQ(op.flops(input), 6 * 4 * 6 * (2 * 30 + 1));
}

TEST(Conv2d, RefusesBadOptions) {
  EXPECT_THAT(refusal([] { conv(0, kSquare3); }), HasSubstr("filters is 0"));
  EXPECT_THAT(refusal([] { conv(4, {.kernel_h = 0}); }),
              testing::AllOf(HasSubstr("kernel height is 0"), HasSubstr("1 … 65536")));
  EXPECT_THAT(refusal([] { conv(4, {.kernel_w = -1}); }), HasSubstr("kernel width"));
  EXPECT_THAT(refusal([] { conv(4, {.stride_h = 0}); }), HasSubstr("vertical stride"));
  EXPECT_THAT(refusal([] { conv(4, {.stride_w = 1 << 20}); }), HasSubstr("horizontal stride"));
  EXPECT_THAT(refusal([] { conv(4, {.pad_left = -1}); }), HasSubstr("padding is -1"));
  EXPECT_THAT(refusal([] { conv(4, {.pad_top = 1, .same = true}); }), HasSubstr("\"same\""));
  EXPECT_THAT(refusal([] { conv(4, kSquare3, 0); }), HasSubstr("groups is 0"));
  EXPECT_THAT(refusal([] { conv(4, kSquare3, 3); }), HasSubstr("4 filters"));
}

TEST(Conv2d, RefusesInputsThatDoNotFitAndNamesBothShapes) {
  EXPECT_THAT(refusal([] { infer(conv(4, kSquare3), {{784}}); }), HasSubstr("784"));
  EXPECT_THAT(refusal([] {
                infer(conv(4, {.kernel_h = 5, .kernel_w = 3}), {{4, 8, 2}});
              }),
              testing::AllOf(HasSubstr("5×3"), HasSubstr("4×8×2")));
  EXPECT_THAT(refusal([] {
                infer(conv(4, kSquare3, 2), {{8, 8, 3}});
              }),
              testing::AllOf(HasSubstr("8×8×3"), HasSubstr("2 groups")));
}

TEST(Pool2d, InfersShapes) {
  const Window halves{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
  EXPECT_EQ(infer(Pool2dOp(Mode::kMax, halves), {{27, 28, 5}}), (Shape{13, 14, 5}));
  EXPECT_EQ(infer(GlobalPool2dOp(Mode::kAverage), {{7, 9, 5}}), (Shape{5}));
}

TEST(Pool2d, RefusesWindowsThatCouldLieInThePaddingAlone) {
  EXPECT_THAT(refusal([] { Pool2dOp(Mode::kMax, {.kernel_h = 2, .pad_top = 2}); }),
              testing::AllOf(HasSubstr("max_pool2d"), HasSubstr("0 … 1")));
  EXPECT_THAT(refusal([] { Pool2dOp(Mode::kAverage, {.kernel_w = 3, .pad_right = 3}); }),
              testing::AllOf(HasSubstr("average_pool2d"), HasSubstr("right padding 3")));
  Pool2dOp(Mode::kMax, {.kernel_h = 2, .kernel_w = 2, .pad_top = 1, .pad_bottom = 1});
}

TEST(Pool2d, RefusesInputsThatDoNotFitAndNamesBothShapes) {
  const Pool2dOp op(Mode::kMax, kSquare3);
  EXPECT_THAT(refusal([&] {
                infer(op, {{2, 9, 1}});
              }),
              testing::AllOf(HasSubstr("3×3"), HasSubstr("2×9×1")));
  EXPECT_THAT(refusal([&] { infer(op, {{9, 9}}); }), HasSubstr("9×9"));
  EXPECT_THAT(refusal([] { infer(GlobalPool2dOp(Mode::kMax), {{9}}); }), HasSubstr("input is 9"));
}

TEST(Pool2d, MaximumOfNegativeValuesIsNotThePadding) {
  const Pool2dOp op(Mode::kMax, {.kernel_h = 3, .kernel_w = 3, .same = true});
  const std::vector<Shape> shapes{{1, 1, 1}};
  const float x = -5, *inputs[] = {&x};
  float y = 0;
  op.forward({.context = {.rows = 1},
              .operator_id = 0,
              .input_shapes = shapes,
              .inputs = inputs,
              .parameters = {},
              .output = &y,
              .saved = nullptr});
  EXPECT_EQ(y, -5);
}

TEST(Reshape, KeepsTheNumberOfElements) {
  EXPECT_EQ(infer(ReshapeOp(std::nullopt), {{3, 4, 2}}), (Shape{24}));
  EXPECT_EQ(ReshapeOp(std::nullopt).kind(), "flatten");
  EXPECT_EQ(infer(ReshapeOp(Shape{6, 4}), {{3, 4, 2}}), (Shape{6, 4}));
  EXPECT_THAT(refusal([] {
                infer(ReshapeOp(Shape{5, 5}), {{3, 4, 2}});
              }),
              testing::AllOf(HasSubstr("3×4×2"), HasSubstr("5×5"), HasSubstr("24")));
}

TEST(Add, RefusesDifferentShapesAndNamesBoth) {
  EXPECT_EQ(infer(AddOp(), {{3, 4}, {3, 4}}), (Shape{3, 4}));
  EXPECT_THAT(refusal([] {
                infer(AddOp(), {{3, 4}, {4, 3}});
              }),
              testing::AllOf(HasSubstr("3×4"), HasSubstr("4×3")));
  EXPECT_THAT(refusal([] { infer(AddOp(), {{3, 4}}); }), HasSubstr("given 1"));
}

TEST(Activation, RefusesASlopeOutsideItsRange) {
  const auto leaky = [](float slope) { ActivationOp(ActivationKind::kLeakyRelu, slope); };
  EXPECT_THAT(refusal([&] { leaky(-0.5f); }), HasSubstr("0 … 1"));
  EXPECT_THAT(refusal([&] { leaky(std::numeric_limits<float>::quiet_NaN()); }), HasSubstr("nan"));
}

TEST(Activation, TellsWhatItsBackwardNeeds) {
  EXPECT_TRUE(ActivationOp(ActivationKind::kGelu).backward_needs().inputs);
  EXPECT_FALSE(ActivationOp(ActivationKind::kGelu).backward_needs().output);
  EXPECT_FALSE(ActivationOp(ActivationKind::kTanh).backward_needs().inputs);
  EXPECT_TRUE(ActivationOp(ActivationKind::kTanh).backward_needs().output);
}

TEST(BatchNorm, DescribesItsParametersAndMoments) {
  const BatchNormOp op({.momentum = 0.2f});
  const std::vector<Shape> input{{4, 5, 3}};
  const auto specs = op.parameters(input);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].name, "scale");
  EXPECT_EQ(specs[0].initializer, "ones");
  EXPECT_FALSE(specs[0].decay);
  EXPECT_EQ(specs[1].name, "shift");
  EXPECT_EQ(specs[1].initializer, "zeros");
  EXPECT_FALSE(specs[1].decay);
  const MomentsSpec moments = *op.moments(input);
  EXPECT_EQ(moments.channels, 3);
  EXPECT_EQ(moments.count_per_sample, 20);
  EXPECT_EQ(moments.momentum, 0.2f);
  EXPECT_EQ(op.saved_floats(input, 64), 6);
}

TEST(BatchNorm, RefusesBadOptions) {
  EXPECT_THAT(refusal([] { BatchNormOp({.momentum = 1.5f}); }), HasSubstr("0 … 1"));
  EXPECT_THAT(refusal([] { BatchNormOp({.epsilon = 0}); }), HasSubstr("epsilon is 0"));
  EXPECT_THAT(refusal([] { infer(BatchNormOp({}), {Shape{}}); }), HasSubstr("scalar"));
}

TEST(Softmax, RefusesAScalar) {
  EXPECT_THAT(refusal([] { infer(SoftmaxOp(), {Shape{}}); }), HasSubstr("scalar"));
}

// The output of dropout on ones: one row per sample.
std::vector<float> dropout_of_ones(float rate, RowsContext context, uint32_t operator_id,
                                   std::vector<uint64_t> samples) {
  const std::vector<Shape> shapes{{10, 10}};
  const std::vector<float> ones(samples.size() * 100, 1.0f);
  std::vector<float> output(ones.size());
  context.rows = static_cast<int64_t>(samples.size());
  context.samples = samples;
  const float* inputs[] = {ones.data()};
  DropoutOp(rate).forward({.context = context,
                           .operator_id = operator_id,
                           .input_shapes = shapes,
                           .inputs = inputs,
                           .parameters = {},
                           .output = output.data(),
                           .saved = nullptr});
  return output;
}

TEST(Dropout, RefusesARateOutsideItsRange) {
  EXPECT_THAT(refusal([] { DropoutOp(1.0f); }), HasSubstr("below 1"));
  EXPECT_THAT(refusal([] { DropoutOp(-0.1f); }), HasSubstr("rate is -0.1"));
  EXPECT_THAT(refusal([] { DropoutOp(std::nanf("")); }), HasSubstr("nan"));
}

TEST(Dropout, IsTheIdentityInInference) {
  EXPECT_THAT(dropout_of_ones(0.9f, {.training = false}, 0, {4}), testing::Each(1.0f));
}

TEST(Dropout, KeepsWhatItsStreamSaysAndScalesIt) {
  const auto output = dropout_of_ones(0.2f, {.training = true, .seed = 7, .epoch = 3}, 5, {42});
  const RandomStream stream = dropout_stream(7, 3, 5, 42);
  for (size_t e = 0; e < output.size(); ++e) {
    EXPECT_EQ(output[e], stream.uniform(e) >= 0.2f ? 1.25f : 0.0f);
  }
}

TEST(Dropout, DropsTheRateOnAverage) {
  std::vector<uint64_t> samples(200);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = i;
  const auto output = dropout_of_ones(0.3f, {.training = true, .seed = 1}, 0, samples);
  const auto dropped = std::count(output.begin(), output.end(), 0.0f);
  EXPECT_NEAR(static_cast<double>(dropped) / 20000, 0.3, 0.015);
}

TEST(Dropout, AMaskBelongsToTheSampleNotToItsRow) {
  const RowsContext context{.training = true, .seed = 1};
  const auto both = dropout_of_ones(0.5f, context, 0, {8, 9});
  EXPECT_EQ(std::vector<float>(both.begin() + 100, both.end()),
            dropout_of_ones(0.5f, context, 0, {9}));
}

TEST(Dropout, SeedsEpochsOperatorsAndSamplesNeverShareAMask) {
  std::set<std::vector<float>> masks;
  for (uint64_t seed : {1, 2}) {
    for (uint32_t epoch : {0, 1}) {
      for (uint32_t operator_id : {0, 1}) {
        for (uint64_t sample : {0, 1}) {
          masks.insert(dropout_of_ones(0.5f, {.training = true, .seed = seed, .epoch = epoch},
                                       operator_id, {sample}));
        }
      }
    }
  }
  EXPECT_EQ(masks.size(), 16u);
}

// What a user writes at least: the rest has defaults.
class Negate : public Operator {
 public:
  std::string kind() const override { return "negate"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  void forward(const ForwardArgs&) const override {}
  void backward(const BackwardArgs&) const override {}
};

TEST(Operator, HasNoParametersAndNothingSavedUnlessItSaysSo) {
  const std::vector<Shape> input{{3, 4}};
  const Negate op;
  EXPECT_TRUE(op.parameters(input).empty());
  EXPECT_FALSE(op.moments(input).has_value());
  EXPECT_EQ(op.saved_floats(input, 8), 0);
  EXPECT_EQ(op.flops(input), 12);
  EXPECT_TRUE(op.backward_needs().inputs);
  EXPECT_TRUE(op.backward_needs().output);
}

}  // namespace
}  // namespace starling
