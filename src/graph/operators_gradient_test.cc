// Every operator against finite differences: the derivative of a random projection of the output
// with respect to every input and parameter, one by one, by central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "graph/operators.h"

namespace starling {
namespace {

using Floats = std::vector<float>;

// A step of the difference, and the spacing of the values: wide enough that no step crosses a
// kink (of relu at 0, of a maximum where two values meet).
constexpr float kStep = 0x1p-7f;
constexpr float kSpacing = 0.04f;
// What gradients hold before the backward pass.
constexpr float kStart = 0.5f;

// Distinct values around 0, but not 0, in a seeded order.
Floats spread_values(int64_t n, uint64_t seed) {
  const Permutation order(static_cast<uint64_t>(n), seed, 0);
  Floats values;
  for (int64_t i = 0; i < n; ++i) {
    const double place =
        static_cast<double>(order(static_cast<uint64_t>(i))) - static_cast<double>(n / 2) + 0.5;
    values.push_back(static_cast<float>(place * kSpacing));
  }
  return values;
}

struct Problem {
  std::string name;
  OperatorPtr op;
  std::vector<Shape> input_shapes;
  int64_t rows = 2;
};

void PrintTo(const Problem& problem, std::ostream* out) { *out << problem.name; }

class OperatorGradient : public testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    const Problem& p = GetParam();
    for (const Shape& shape : p.input_shapes) {
      tensors_.push_back(spread_values(p.rows * shape.elements(), tensors_.size()));
    }
    for (const ParameterSpec& spec : p.op->parameters(p.input_shapes)) {
      tensors_.push_back(spread_values(spec.shape.elements(), tensors_.size()));
    }
    samples_.resize(static_cast<size_t>(p.rows));
    std::iota(samples_.begin(), samples_.end(), 1000u);
    context_ = {.rows = p.rows, .training = true, .seed = 5, .epoch = 2, .samples = samples_};
    const size_t outputs = static_cast<size_t>(p.rows * p.op->infer(p.input_shapes).elements());
    const RandomStream stream(9, Draw::kSynthetic);
    for (size_t i = 0; i < outputs; ++i) projection_.push_back(stream.uniform(i) * 2 - 1);
    output_.resize(outputs);
    saved_.resize(static_cast<size_t>(p.op->saved_floats(p.input_shapes, p.rows)));
    const auto moments = p.op->moments(p.input_shapes);
    moments_.resize(moments ? static_cast<size_t>(2 * moments->channels) : 0);
  }

  // Σ projection · output.
  double project() {
    const Problem& p = GetParam();
    const std::vector<const float*> all = pointers();
    const std::span<const float* const> span(all);
    p.op->forward({.context = context_,
                   .operator_id = 1,
                   .input_shapes = p.input_shapes,
                   .inputs = span.first(p.input_shapes.size()),
                   .parameters = span.subspan(p.input_shapes.size()),
                   .output = output_.data(),
                   .saved = saved_.data(),
                   .batch_mean = moments_.data(),
                   .batch_m2 = moments_.data() + moments_.size() / 2});
    double sum = 0;
    for (size_t i = 0; i < output_.size(); ++i) sum += double{projection_[i]} * output_[i];
    return sum;
  }

  // The gradient of project() for all tensors, at the place of the last project(). It is added
  // to what is there, so it starts from something.
  std::vector<Floats> gradients() {
    const Problem& p = GetParam();
    std::vector<Floats> result;
    std::vector<float*> targets;
    for (const Floats& tensor : tensors_) result.emplace_back(tensor.size(), kStart);
    for (Floats& gradient : result) targets.push_back(gradient.data());
    const std::vector<const float*> all = pointers();
    const std::span<const float* const> span(all);
    const std::span<float* const> target_span(targets);
    p.op->backward({.context = context_,
                    .operator_id = 1,
                    .input_shapes = p.input_shapes,
                    .inputs = span.first(p.input_shapes.size()),
                    .parameters = span.subspan(p.input_shapes.size()),
                    .output = output_.data(),
                    .saved = saved_.data(),
                    .grad_output = projection_.data(),
                    .grad_inputs = target_span.first(p.input_shapes.size()),
                    .grad_parameters = target_span.subspan(p.input_shapes.size())});
    for (Floats& gradient : result) {
      for (float& value : gradient) value -= kStart;
    }
    return result;
  }

  std::vector<const float*> pointers() const {
    std::vector<const float*> result;
    for (const Floats& tensor : tensors_) result.push_back(tensor.data());
    return result;
  }

  std::vector<Floats> tensors_;  // inputs, then parameters
  std::vector<uint64_t> samples_;
  RowsContext context_;
  Floats projection_, output_, saved_;
  std::vector<double> moments_;
};

TEST_P(OperatorGradient, EqualsCentralDifferences) {
  project();
  const std::vector<Floats> exact = gradients();
  for (size_t t = 0; t < tensors_.size(); ++t) {
    for (size_t i = 0; i < tensors_[t].size(); ++i) {
      float& value = tensors_[t][i];
      const float middle = value, above = middle + kStep, below = middle - kStep;
      value = above;
      const double higher = project();
      value = below;
      const double lower = project();
      value = middle;
      const double slope = (higher - lower) / (double{above} - below);
      ASSERT_NEAR(exact[t][i], slope, 1e-3 * (1 + std::abs(slope)))
          << "tensor " << t << " element " << i;
    }
  }
}

std::vector<Problem> problems() {
  const Window small{.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .pad_top = 1, .pad_right = 1};
  const Window same{.kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .same = true};
  const Shape image{4, 5, 2};
  using Mode = Pool2dOp::Mode;
  std::vector<Problem> all{
      {"Dense", std::make_shared<DenseOp>(DenseOp::Options{.units = 3}), {{2, 4}}},
      {"DenseNoBias",
       std::make_shared<DenseOp>(DenseOp::Options{.units = 3, .bias = false}),
       {{5}}},
      {"Conv2d",
       std::make_shared<Conv2dOp>(Conv2dOp::Options{.filters = 3, .window = small}),
       {image}},
      {"Conv2dGroups",
       std::make_shared<Conv2dOp>(
           Conv2dOp::Options{.filters = 4, .window = same, .groups = 2, .bias = false}),
       {image}},
      {"MaxPool2d", std::make_shared<Pool2dOp>(Mode::kMax, small), {image}},
      {"MaxPool2dSame", std::make_shared<Pool2dOp>(Mode::kMax, same), {image}},
      {"AveragePool2d", std::make_shared<Pool2dOp>(Mode::kAverage, small), {image}},
      {"AveragePool2dSame", std::make_shared<Pool2dOp>(Mode::kAverage, same), {image}},
      {"GlobalMaxPool2d", std::make_shared<GlobalPool2dOp>(Mode::kMax), {image}},
      {"GlobalAveragePool2d", std::make_shared<GlobalPool2dOp>(Mode::kAverage), {image}},
      {"Flatten", std::make_shared<ReshapeOp>(std::nullopt), {image}},
      {"Reshape", std::make_shared<ReshapeOp>(Shape{8, 5}), {image}},
      {"Softmax", std::make_shared<SoftmaxOp>(), {{2, 5}}},
      {"Dropout", std::make_shared<DropoutOp>(0.4f), {{7, 3}}},
      {"BatchNorm", std::make_shared<BatchNormOp>(BatchNormOp::Options{}), {{3, 2, 2}}, 3},
      {"BatchNormVector", std::make_shared<BatchNormOp>(BatchNormOp::Options{}), {{4}}, 6},
      {"Add", std::make_shared<AddOp>(), {{3, 2}, {3, 2}}},
  };
  const std::pair<const char*, ActivationKind> activations[] = {
      {"Relu", ActivationKind::kRelu}, {"LeakyRelu", ActivationKind::kLeakyRelu},
      {"Gelu", ActivationKind::kGelu}, {"Sigmoid", ActivationKind::kSigmoid},
      {"Tanh", ActivationKind::kTanh},
  };
  for (const auto& [name, kind] : activations) {
    all.push_back({name, std::make_shared<ActivationOp>(kind, 0.2f), {{6, 7}}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, OperatorGradient, testing::ValuesIn(problems()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling
