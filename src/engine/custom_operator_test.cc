// Operators and losses that the engine knows nothing of: run through a plan among its own fused
// kernels, against the reference executor and against differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/executor.h"
#include "engine/operators_testing.h"
#include "engine/plan_testing.h"
#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

using namespace testing_plans;

// y = x · σ(β·x) with a β per channel, as in examples/custom_operator.cc.
class SwishOp : public Operator {
 public:
  std::string kind() const override { return "swish"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{.name = "beta", .shape = {inputs[0].back()}, .initializer = "ones", .decay = false}};
  }
  int64_t saved_floats(std::span<const Shape> inputs, int64_t rows) const override {
    return rows * inputs[0].elements();
  }
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }
  void forward(const ForwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i) {
      const float x = args.inputs[0][i];
      args.saved[i] = 1 / (1 + std::exp(-args.parameters[0][i % channels] * x));
      args.output[i] = x * args.saved[i];
    }
  }
  void backward(const BackwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i) {
      const float x = args.inputs[0][i], s = args.saved[i], slope = s * (1 - s),
                  dy = args.grad_output[i];
      if (args.grad_inputs[0] != nullptr)
        args.grad_inputs[0][i] += dy * (s + args.parameters[0][i % channels] * x * slope);
      if (args.grad_parameters[0] != nullptr)
        args.grad_parameters[0][i % channels] += dy * x * x * slope;
    }
  }
};

// y = a · b, element by element.
class MultiplyOp : public Operator {
 public:
  std::string kind() const override { return "multiply"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }
  void forward(const ForwardArgs& args) const override {
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i) {
      args.output[i] = args.inputs[0][i] * args.inputs[1][i];
    }
  }
  void backward(const BackwardArgs& args) const override {
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i) {
      for (const size_t side : {0, 1}) {
        float* to = args.grad_inputs[side];
        if (to != nullptr) to[i] += args.grad_output[i] * args.inputs[1 - side][i];
      }
    }
  }
};

// y = σ(x), which needs its output alone, or (`wasteful`) says that it needs all.
class LogisticOp : public Operator {
 public:
  explicit LogisticOp(bool wasteful) : wasteful_(wasteful) {}
  std::string kind() const override { return "logistic"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  BackwardNeeds backward_needs() const override { return {.inputs = wasteful_, .output = true}; }
  void forward(const ForwardArgs& args) const override {
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i)
      args.output[i] = 1 / (1 + std::exp(-args.inputs[0][i]));
  }
  void backward(const BackwardArgs& args) const override {
    if (args.grad_inputs[0] == nullptr) return;
    for (int64_t i = 0; i < args.context.rows * args.input_shapes[0].elements(); ++i) {
      args.grad_inputs[0][i] += args.grad_output[i] * args.output[i] * (1 - args.output[i]);
    }
  }

 private:
  const bool wasteful_;
};

// y = x − mean, with running means: a normalisation of the user's own.
class CentreOp : public Operator {
 public:
  std::string kind() const override { return "centre"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::optional<MomentsSpec> moments(std::span<const Shape> inputs) const override {
    return MomentsSpec{.channels = inputs[0].back(),
                       .count_per_sample = inputs[0].elements() / inputs[0].back()};
  }
  BackwardNeeds backward_needs() const override { return {.inputs = false, .output = false}; }
  void forward(const ForwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    const int64_t n = args.context.rows * args.input_shapes[0].elements() / channels;
    for (int64_t c = 0; c < channels; ++c) {
      const auto x = [&](int64_t i) { return args.inputs[0][i * channels + c]; };
      double mean = 0;
      if (args.context.training) {
        for (int64_t i = 0; i < n; ++i) mean += x(i);
        args.batch_mean[c] = mean /= static_cast<double>(n);
        args.batch_m2[c] = 0;
        for (int64_t i = 0; i < n; ++i) args.batch_m2[c] += (x(i) - mean) * (x(i) - mean);
      } else {
        mean = args.running_mean[c];
      }
      for (int64_t i = 0; i < n; ++i)
        args.output[i * channels + c] = static_cast<float>(x(i) - mean);
    }
  }
  void backward(const BackwardArgs& args) const override {
    if (args.grad_inputs[0] == nullptr) return;
    const int64_t channels = args.input_shapes[0].back();
    const int64_t n = args.context.rows * args.input_shapes[0].elements() / channels;
    for (int64_t c = 0; c < channels; ++c) {
      double mean = 0;
      for (int64_t i = 0; i < n; ++i) mean += args.grad_output[i * channels + c];
      mean /= static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        args.grad_inputs[0][i * channels + c] +=
            static_cast<float>(args.grad_output[i * channels + c] - mean);
      }
    }
  }
};

// Quadratic near the label, linear far from it: Σ over elements, the bend at ± 0.25.
class HuberLoss : public Loss {
 public:
  std::string kind() const override { return "huber"; }
  Shape label_shape(const Shape& prediction) const override { return prediction; }
  void forward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
               float* losses) const override {
    const int64_t n = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i) {
        const double d = std::abs(double{prediction[i]} - labels[i]);
        sum += d < kBend ? d * d / 2 : kBend * (d - kBend / 2);
      }
      losses[row] = static_cast<float>(sum);
    }
  }
  void backward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float scale, float* grad_prediction) const override {
    for (int64_t i = 0; i < rows * shape.elements(); ++i) {
      grad_prediction[i] = scale * std::clamp(prediction[i] - labels[i], -kBend, kBend);
    }
  }

 private:
  static constexpr float kBend = 0.25f;
};

OperatorPtr swish() { return std::make_shared<SwishOp>(); }
OperatorPtr multiply() { return std::make_shared<MultiplyOp>(); }
OperatorPtr centre() { return std::make_shared<CentreOp>(); }

// Between groups of every kind: dense + tanh, relu + max pool, conv + relu, reshape.
Graph among_fused() {
  return chain({6, 6, 3},
               {conv(4), swish(), relu(), max_pool(), swish(), conv(4), relu(), swish(), flatten(),
                swish(), dense(6), activation(ActivationKind::kTanh), swish(), dense(5)});
}
// On the data itself, and as the model's output.
Graph at_both_ends() { return chain({7}, {swish(), dense(5), swish()}); }
// Values with several readers, of which some are the user's own.
Graph joined() {
  Graph graph;
  const ValueId x = graph.add_input({4, 4, 4});
  const ValueId a = graph.add(conv(4), {x});
  const ValueId b = graph.add(multiply(), {graph.add(swish(), {a}), a});
  const ValueId c = graph.add(multiply(), {b, b});
  const ValueId d = graph.add(activation(ActivationKind::kTanh),
                              {graph.add(add(), {c, graph.add(conv(4), {c})})});
  const ValueId e = graph.add(add(), {graph.add(swish(), {d}), graph.add(swish(), {d})});
  graph.add(dense(5), {graph.add(flatten(), {e})});
  return graph;
}
Graph with_moments() {
  return chain({3, 3, 4}, {conv(4), centre(), activation(ActivationKind::kSigmoid), centre(),
                           flatten(), dense(5)});
}

struct CustomCase {
  const char* name;
  Graph graph;
};
void PrintTo(const CustomCase& c, std::ostream* out) { *out << c.name; }

class CustomOperators : public testing::TestWithParam<CustomCase> {};

TEST_P(CustomOperators, TrainingMatchesTheReference) {
  for (const bool fuse : {true, false}) {
    for (const int64_t rows : {1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " fuse " << fuse);
      Rig rig(GetParam().graph, mean_squared_error(), rows);
      const Rig::Outcome expected = rig.run_reference(true, true, 0.5f);
      const Rig::Outcome actual = rig.run_plan({.input_gradients = true, .fuse = fuse}, 0.5f, true);
      expect_close(actual.output, expected.output, 2e-5f, "output");
      expect_close(actual.losses, expected.losses, 2e-5f, "losses");
      expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
      expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
      for (size_t i = 0; i < expected.moments.size(); ++i)
        ASSERT_NEAR(actual.moments[i], expected.moments[i], 1e-5);
    }
  }
}

TEST_P(CustomOperators, WithoutInputGradientsParametersGetTheSame) {
  Rig rig(GetParam().graph, mean_squared_error(), 3);
  EXPECT_EQ(rig.run_plan({}).gradients, rig.run_plan({.input_gradients = true}).gradients);
}

TEST_P(CustomOperators, OverwriteWhatLiesInTheGradient) {
  Rig rig(GetParam().graph, mean_squared_error(), 4);
  EXPECT_EQ(rig.run_plan({}, 123.0f, false).gradients, rig.run_plan({}, 0.0f, false).gradients);
}

TEST_P(CustomOperators, InferenceMatchesTheReference) {
  Rig rig(GetParam().graph, mean_squared_error(), 6);
  expect_close(rig.run_plan({.training = false}).output, rig.run_reference(false, false).output,
               2e-5f, "output");
}

// The derivative of the summed loss along a random direction of all parameters, by the plan alone.
double slope_by_differences(Rig& rig, const Floats& direction, double step) {
  const Floats start(rig.weights.begin(), rig.weights.end());
  const auto loss_at = [&](double distance) {
    for (size_t i = 0; i < start.size(); ++i) {
      rig.weights[i] = static_cast<float>(double{start[i]} + distance * double{direction[i]});
    }
    double sum = 0;
    rig.packed = PackedWeights(rig.weights.data());
    for (const float loss : rig.run_plan({}).losses) sum += double{loss};
    return sum;
  };
  const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
  std::copy(start.begin(), start.end(), rig.weights.begin());
  rig.packed = PackedWeights(rig.weights.data());
  return slope;
}

TEST_P(CustomOperators, GradientsAgreeWithDifferences) {
  for (const LossPtr& loss : {mean_squared_error(), LossPtr(std::make_shared<HuberLoss>())}) {
    Rig rig(GetParam().graph, loss, 5);
    const Floats direction = testing_plans::random_floats(rig.weights.size(), 77);
    const Floats along = rig.only_parameters(direction);
    const Floats gradients = rig.run_plan({}).gradients;
    double expected = 0;
    // The rig's frames scale the loss by 0.25.
    for (size_t i = 0; i < along.size(); ++i)
      expected += 4 * double{gradients[i]} * double{along[i]};
    const double actual = slope_by_differences(rig, direction, 1e-3);
    EXPECT_NEAR(actual, expected, 1e-2 * std::abs(expected) + 2e-3) << loss->kind();
    EXPECT_GT(std::abs(expected), 1e-2) << "too flat to tell anything";
  }
}

// The gradient of a batch cut into shards and micro-batches: what reaches the optimizer.
Floats executor_gradient(const Rig& rig, ExecutorOptions options) {
  Executor executor(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(), options);
  executor.gradient(
      {.samples = rig.samples, .features = rig.features.data(), .labels = rig.labels.data()});
  Floats sum(rig.space.total_floats(), 0.0f);
  for (const float* shard : executor.gradients()) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += shard[i];
  }
  return rig.only_parameters(sum);
}

TEST_P(CustomOperators, MicroBatchesAddUp) {
  const Rig rig(GetParam().graph, mean_squared_error(), 11);
  if (rig.moments.size() > 0) return;  // a shard is one micro-batch there
  const Floats whole = executor_gradient(rig, {.lanes = 1, .shards = 1});
  for (const int64_t micro : {1, 2, 4, 11}) {
    expect_close(executor_gradient(rig, {.lanes = 1, .shards = 1, .micro_batch = micro}), whole,
                 1e-5f, "gradients");
  }
  expect_close(executor_gradient(rig, {.lanes = 2, .shards = 3, .micro_batch = 2}), whole, 1e-5f,
               "gradients");
}

TEST_P(CustomOperators, LanesDoNotChangeTheBits) {
  const Rig rig(GetParam().graph, mean_squared_error(), 11);
  const Floats one = executor_gradient(rig, {.lanes = 1, .shards = 4, .micro_batch = 2});
  EXPECT_EQ(executor_gradient(rig, {.lanes = 3, .shards = 4, .micro_batch = 2}), one);
}

INSTANTIATE_TEST_SUITE_P(Models, CustomOperators,
                         testing::Values(CustomCase{"AmongFused", among_fused()},
                                         CustomCase{"AtBothEnds", at_both_ends()},
                                         CustomCase{"Joined", joined()},
                                         CustomCase{"WithMoments", with_moments()}),
                         [](const auto& test) { return test.param.name; });

// Null pointers for what is not wanted, and a gradient that passes through all the same.
TEST(CustomOperator, FrozenPassesItsGradientOn) {
  Graph graph;
  const ValueId x = graph.add(dense(6), {graph.add_input({4})});
  graph.add(dense(3), {graph.add(swish(), {x}, "own", {.trainable = false})});
  Rig rig(graph, mean_squared_error(), 5);
  const Rig::Outcome expected = rig.run_reference(true, false), actual = rig.run_plan({});
  expect_close(actual.gradients, expected.gradients, 1e-5f, "gradients");
  const Slice& beta = *rig.space.find("own.beta");
  EXPECT_EQ(rig.compile({})->ready_after(static_cast<size_t>(&beta - rig.space.slices().data())),
            -1);
}

// Memory of a value that backward says it does not read is used again.
TEST(CustomOperator, KeepsOnlyWhatItsBackwardReads) {
  const auto arena_floats = [](bool wasteful) {
    const OperatorPtr own = std::make_shared<LogisticOp>(wasteful);
    Rig rig(chain({64}, {dense(64), activation(ActivationKind::kGelu), own, dense(64), own, own,
                         own, dense(2)}),
            mean_squared_error(), 32);
    const Rig::Outcome expected = rig.run_reference(true, false), actual = rig.run_plan({});
    expect_close(actual.losses, expected.losses, 1e-4f, "losses");
    expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
    return rig.compile({})->arena_floats();
  };
  EXPECT_LT(arena_floats(false), arena_floats(true));
}

TEST(CustomOperator, ErrorNamesTheLayer) {
  class Fussy : public SwishOp {
    Shape infer(std::span<const Shape> inputs) const override {
      throw input_error("fussy takes nothing of shape " + inputs[0].to_string(), "leave it out");
    }
  };
  Graph graph;
  const ValueId x = graph.add_input({4, 2});
  EXPECT_EQ(refusal([&] { graph.add(std::make_shared<Fussy>(), {x}, "mine"); }),
            "layer mine: fussy takes nothing of shape 4×2 | leave it out");
}

TEST(CustomLoss, MatchesTheReference) {
  for (const bool training : {true, false}) {
    Rig rig(among_fused(), std::make_shared<HuberLoss>(), 6);
    const Rig::Outcome expected = rig.run_reference(training, false);
    const Rig::Outcome actual = rig.run_plan({.training = training});
    expect_close(actual.losses, expected.losses, 2e-5f, "losses");
    expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
  }
}

// The engine has a fused kernel for its own loss of this name.
TEST(CustomLoss, IsItselfWhateverItsName) {
  class Namesake : public HuberLoss {
    std::string kind() const override { return "softmax_cross_entropy"; }
  };
  Rig own(chain({3}, {dense(4)}), std::make_shared<HuberLoss>(), 5);
  Rig namesake(chain({3}, {dense(4)}), std::make_shared<Namesake>(), 5);
  namesake.labels = own.labels;  // the rig makes labels by the name
  EXPECT_EQ(namesake.run_plan({}).losses, own.run_plan({}).losses);
  EXPECT_EQ(namesake.run_plan({}).gradients, own.run_plan({}).gradients);
}

// Two classes, −1 and 1: zero is no label, so that a prediction must not ask about any.
class HingeLoss : public HuberLoss {
 public:
  void check_labels(int64_t rows, const Shape&, const float* labels,
                    uint64_t first_sample) const override {
    for (int64_t row = 0; row < rows; ++row) {
      if (std::abs(labels[row]) == 1) continue;
      throw input_error("sample " + std::to_string(first_sample + static_cast<uint64_t>(row)) +
                            " is neither −1 nor 1",
                        "use these two");
    }
  }
};

TEST(CustomLoss, ChecksLabelsInTrainingAndEvaluationButNotInPrediction) {
  Rig rig(chain({3}, {dense(1)}), std::make_shared<HingeLoss>(), 5);
  Executor executor(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(),
                    {.lanes = 2, .shards = 2});
  for (float& label : rig.labels) label = 1;
  const RowReader reader = [&](std::span<const uint64_t> ids, float* features, float* labels) {
    for (size_t i = 0; i < ids.size(); ++i) {
      std::copy_n(rig.features.data() + ids[i] * 3, 3, features + i * 3);
      labels[i] = rig.labels[ids[i]];
    }
  };
  const std::vector<uint64_t> samples{0, 1, 2, 3, 4};
  executor.gradient({.samples = samples, .reader = &reader});
  EXPECT_EQ(executor.board().total().samples, 5);
  std::vector<double> row(2);
  const auto evaluate = [&] { executor.evaluate(reader, 5, nullptr, {0, 1}, row); };
  evaluate();
  EXPECT_EQ(row[0], 5);
  const RowReader features_only = [&](std::span<const uint64_t> ids, float* features, float*) {
    for (size_t i = 0; i < ids.size(); ++i)
      std::copy_n(rig.features.data() + ids[i] * 3, 3, features + i * 3);
  };
  EXPECT_EQ(executor.predict(features_only, 5, nullptr).size(), 5u);
  rig.labels[3] = 0.5f;
  for (const std::function<void()>& use :
       {std::function<void()>([&] { executor.gradient({.samples = samples, .reader = &reader}); }),
        std::function<void()>(evaluate)}) {
    EXPECT_STREQ(error_of(use).what(), "sample 3 is neither −1 nor 1");
  }
}

}  // namespace
}  // namespace starling
