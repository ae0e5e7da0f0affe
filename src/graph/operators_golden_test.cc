// Every operator against PyTorch's numbers: outputs, gradients, and gradients that are added to
// what is already there.
#include <gtest/gtest.h>

#include <cmath>

#include "golden.h"

namespace starling {
namespace {

using golden::Floats;
using golden::OperatorCase;

std::vector<const float*> pointers(const std::vector<Floats>& tensors) {
  std::vector<const float*> result;
  for (const Floats& tensor : tensors) result.push_back(tensor.data());
  return result;
}

// Relative to the largest value, because sums of rounded terms cancel, and no finer than the
// rounding of what the gradients are added to.
void expect_near(const Floats& actual, const Floats& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float largest = 0.1f;
  for (float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-6f * largest) << what << " element " << i;
  }
}

class OperatorGolden : public testing::TestWithParam<OperatorCase> {
 protected:
  void forward() {
    const OperatorCase& c = GetParam();
    context_ = {.rows = c.rows,
                .training = c.training,
                .seed = c.seed,
                .epoch = c.epoch,
                .samples = c.samples};
    const auto inputs = pointers(c.inputs), parameters = pointers(c.parameters);
    output_.assign(c.output.size(), -77.0f);
    saved_.assign(static_cast<size_t>(c.op->saved_floats(c.input_shapes, c.rows)), -77.0f);
    const auto moments = c.op->moments(c.input_shapes);
    batch_mean_.assign(moments ? static_cast<size_t>(moments->channels) : 0, -77.0);
    batch_m2_ = batch_mean_;
    c.op->forward({.context = context_,
                   .operator_id = 0,
                   .input_shapes = c.input_shapes,
                   .inputs = inputs,
                   .parameters = parameters,
                   .output = output_.data(),
                   .saved = saved_.data(),
                   .running_mean = c.running_mean.data(),
                   .running_variance = c.running_variance.data(),
                   .batch_mean = batch_mean_.data(),
                   .batch_m2 = batch_m2_.data()});
  }

  // Adds to grad_inputs and grad_parameters where they are not empty; the empty are not wanted.
  void backward(std::vector<Floats>& grad_inputs, std::vector<Floats>& grad_parameters) {
    const OperatorCase& c = GetParam();
    const auto wanted = [](std::vector<Floats>& tensors) {
      std::vector<float*> result;
      for (Floats& tensor : tensors) result.push_back(tensor.empty() ? nullptr : tensor.data());
      return result;
    };
    // What the operator says that it does not need is not there.
    const BackwardNeeds needs = c.op->backward_needs();
    auto inputs = pointers(c.inputs);
    if (!needs.inputs) inputs.assign(inputs.size(), nullptr);
    const auto parameters = pointers(c.parameters);
    const auto input_gradients = wanted(grad_inputs), parameter_gradients = wanted(grad_parameters);
    c.op->backward({.context = context_,
                    .operator_id = 0,
                    .input_shapes = c.input_shapes,
                    .inputs = inputs,
                    .parameters = parameters,
                    .output = needs.output ? output_.data() : nullptr,
                    .saved = saved_.data(),
                    .grad_output = c.grad_output.data(),
                    .grad_inputs = input_gradients,
                    .grad_parameters = parameter_gradients});
  }

  RowsContext context_;
  Floats output_, saved_;
  std::vector<double> batch_mean_, batch_m2_;
};

std::vector<Floats> filled_like(const std::vector<Floats>& tensors, float value) {
  std::vector<Floats> result;
  for (const Floats& tensor : tensors) result.emplace_back(tensor.size(), value);
  return result;
}

// The cases that have gradients, and those that have running statistics.
class GradientGolden : public OperatorGolden {};
class MomentsGolden : public OperatorGolden {};

TEST_P(OperatorGolden, ShapesAreInferred) {
  const OperatorCase& c = GetParam();
  EXPECT_EQ(c.op->infer(c.input_shapes), c.output_shape);
  EXPECT_EQ(static_cast<int64_t>(c.output.size()), c.rows * c.output_shape.elements());
  const auto specs = c.op->parameters(c.input_shapes);
  ASSERT_EQ(specs.size(), c.parameters.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].shape.elements(), static_cast<int64_t>(c.parameters[i].size()));
  }
}

TEST_P(OperatorGolden, ForwardIsPyTorchs) {
  const OperatorCase& c = GetParam();
  forward();
  expect_near(output_, c.output, "output");
  if (!c.batch_mean.empty()) {
    expect_near(Floats(batch_mean_.begin(), batch_mean_.end()), c.batch_mean, "batch mean");
    expect_near(Floats(batch_m2_.begin(), batch_m2_.end()), c.batch_m2, "batch m2");
  }
}

TEST_P(MomentsGolden, BatchMomentsGiveTheRunningStatistics) {
  const OperatorCase& c = GetParam();
  forward();
  const MomentsSpec moments = *c.op->moments(c.input_shapes);
  const double n = static_cast<double>(c.rows * moments.count_per_sample);
  Floats mean = c.running_mean, variance = c.running_variance;
  for (size_t i = 0; i < mean.size(); ++i) {
    const double m = moments.momentum;
    mean[i] = static_cast<float>((1 - m) * mean[i] + m * batch_mean_[i]);
    variance[i] = static_cast<float>((1 - m) * variance[i] + m * batch_m2_[i] / (n - 1));
  }
  expect_near(mean, c.running_mean_after, "running mean");
  expect_near(variance, c.running_variance_after, "running variance");
}

TEST_P(GradientGolden, IsPyTorchsAndIsAdded) {
  const OperatorCase& c = GetParam();
  forward();
  for (float start : {0.0f, 0.5f}) {
    auto grad_inputs = filled_like(c.grad_inputs, start);
    auto grad_parameters = filled_like(c.grad_parameters, start);
    backward(grad_inputs, grad_parameters);
    auto expect_added = [&](Floats actual, const Floats& expected, const std::string& what) {
      for (float& value : actual) value -= start;
      expect_near(actual, expected, what);
    };
    for (size_t i = 0; i < grad_inputs.size(); ++i) {
      expect_added(grad_inputs[i], c.grad_inputs[i], "gradient of input " + std::to_string(i));
    }
    for (size_t i = 0; i < grad_parameters.size(); ++i) {
      expect_added(grad_parameters[i], c.grad_parameters[i],
                   "gradient of parameter " + std::to_string(i));
    }
  }
}

TEST_P(GradientGolden, DoesNotDependOnWhichOthersAreWanted) {
  const OperatorCase& c = GetParam();
  forward();
  auto all_inputs = filled_like(c.grad_inputs, 0),
       all_parameters = filled_like(c.grad_parameters, 0);
  backward(all_inputs, all_parameters);
  for (size_t wanted = 0; wanted < all_inputs.size() + all_parameters.size(); ++wanted) {
    std::vector<Floats> inputs(all_inputs.size()), parameters(all_parameters.size());
    const bool is_input = wanted < inputs.size();
    const size_t index = is_input ? wanted : wanted - inputs.size();
    Floats& one = is_input ? inputs[index] : parameters[index];
    const Floats& expected = is_input ? all_inputs[index] : all_parameters[index];
    one.assign(expected.size(), 0.0f);
    backward(inputs, parameters);
    EXPECT_EQ(one, expected) << "gradient " << wanted;
  }
}

template <typename Has>
std::vector<OperatorCase> cases_that(Has has) {
  std::vector<OperatorCase> cases = golden::load_operator_cases();
  std::erase_if(cases, [&](const OperatorCase& c) { return !has(c); });
  return cases;
}

std::string case_name(const testing::TestParamInfo<OperatorCase>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Cases, OperatorGolden, testing::ValuesIn(golden::load_operator_cases()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Cases, GradientGolden,
                         testing::ValuesIn(cases_that([](const OperatorCase& c) {
                           return !c.grad_output.empty();
                         })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Cases, MomentsGolden,
                         testing::ValuesIn(cases_that([](const OperatorCase& c) {
                           return !c.running_mean_after.empty();
                         })),
                         case_name);

}  // namespace
}  // namespace starling
