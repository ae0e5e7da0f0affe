// Convolutions of every shape that has a kernel of its own, against the reference executor. Capped
// at a lesser instruction set, the same tests run its kernels (tests/CMakeLists.txt).
#include "engine/own_conv.h"

#include <gtest/gtest.h>

#include "engine/executor.h"
#include "engine/plan_testing.h"

namespace starling {
namespace {

using testing_plans::expect_close;
using testing_plans::Floats;
using testing_plans::Rig;

struct ConvCase {
  int64_t height, width, channels, filters;
  Window window;
  int64_t rows;
  bool bias = true;
};

Window square(int64_t kernel, int64_t stride, int64_t padding) {
  return {.kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding};
}
Window same(int64_t kernel, int64_t stride) {
  Window window = square(kernel, stride, 0);
  window.same = true;
  return window;
}

Graph graph_of_conv(const ConvCase& c) {
  Graph graph;
  graph.add(std::make_shared<Conv2dOp>(
                Conv2dOp::Options{.filters = c.filters, .window = c.window, .bias = c.bias}),
            {graph.add_input({c.height, c.width, c.channels})});
  return graph;
}

void PrintTo(const ConvCase& c, std::ostream* out) {
  *out << c.rows << " of " << c.height << "×" << c.width << "×" << c.channels << " to " << c.filters
       << ", window " << c.window.kernel_h << "×" << c.window.kernel_w << " stride "
       << c.window.stride_h << (c.window.same ? " same" : " padding ") << c.window.pad_top;
}

std::vector<ConvCase> grid() {
  std::vector<ConvCase> cases;
  int64_t turn = 0;
  for (const int64_t channels : {1, 3, 8, 16, 17, 32, 64}) {
    for (const int64_t filters : {8, 16, 17, 24, 64}) {
      if (channels * filters > 64 * 24) continue;
      for (const Window& window :
           {square(3, 1, 0), square(3, 1, 1), square(3, 1, 2), same(3, 1), square(3, 2, 0),
            square(3, 2, 1), same(3, 2), square(1, 1, 0), square(1, 2, 0), same(5, 3)}) {
        ++turn;  // sizes and rows change from case to case
        cases.push_back({.height = 5 + turn % 7,
                         .width = 5 + turn % 5,
                         .channels = channels,
                         .filters = filters,
                         .window = window,
                         .rows = 1 + turn % 5,
                         .bias = turn % 2 == 0});
      }
    }
  }
  // Several blocks of tiles or patches, and images smaller than a tile or a window.
  cases.push_back({28, 28, 16, 16, square(3, 1, 1), 4});
  cases.push_back({19, 30, 16, 32, square(3, 2, 1), 3});
  cases.push_back({9, 9, 48, 8, square(3, 1, 1), 5});
  cases.push_back({1, 1, 8, 8, square(3, 1, 1), 2});
  cases.push_back({2, 3, 8, 8, square(3, 1, 1), 2});
  cases.push_back({1, 9, 8, 16, square(1, 2, 0), 2});
  return cases;
}

TEST(OwnConv, MatchesTheReference) {
  for (const ConvCase& c : grid()) {
    SCOPED_TRACE(testing::PrintToString(c));
    Rig rig(graph_of_conv(c), nullptr, c.rows);
    const Rig::Outcome expected = rig.run_reference(true, true);
    const Rig::Outcome actual = rig.run_plan({.input_gradients = true});
    expect_close(actual.output, expected.output, 5e-6f, "output");
    expect_close(actual.input_gradient, expected.input_gradient, 5e-6f, "input gradient");
    expect_close(actual.gradients, expected.gradients, 5e-6f, "gradients");
  }
}

TEST(OwnConv, AddsToAGradientThatIsThere) {
  for (const Window& window : {square(3, 1, 1), square(3, 2, 1), square(1, 1, 0)}) {
    Rig rig(graph_of_conv({7, 9, 32, 16, window, 3}), nullptr, 3);
    const Rig::Outcome expected = rig.run_reference(true, true, 0.5f);
    const Rig::Outcome actual = rig.run_plan({.input_gradients = true}, 0.5f, true);
    expect_close(actual.gradients, expected.gradients, 5e-6f, "gradients");
    EXPECT_EQ(rig.run_plan({}, 123.0f, false).gradients, rig.run_plan({}, 0.0f, false).gradients);
  }
}

// The packed copies follow the weights, and convolutions that share weights share them.
TEST(OwnConv, PackedWeightsFollowAnUpdate) {
  for (const Window& window : {square(3, 1, 1), square(3, 2, 1)}) {
    Rig rig(graph_of_conv({8, 8, 32, 16, window, 2}), nullptr, 2);
    const Floats before = rig.run_plan({.input_gradients = true}).output;
    const size_t bytes = rig.packed.bytes();
    for (float& w : rig.weights) w *= -0.75f;
    rig.packed.refresh(0, 1);
    const Rig::Outcome expected = rig.run_reference(true, true);
    const Rig::Outcome actual = rig.run_plan({.input_gradients = true});
    expect_close(actual.output, expected.output, 5e-6f, "output");
    expect_close(actual.input_gradient, expected.input_gradient, 5e-6f, "input gradient");
    EXPECT_NE(actual.output, before);
    EXPECT_EQ(rig.packed.bytes(), bytes);
  }
}

TEST(OwnConv, TakesResidualsAndEveryActivation) {
  for (const ActivationKind kind : {ActivationKind::kRelu, ActivationKind::kLeakyRelu,
                                    ActivationKind::kSigmoid, ActivationKind::kTanh}) {
    for (const Window& window : {square(3, 1, 1), square(1, 1, 0)}) {
      for (const bool residual : {false, true}) {
        SCOPED_TRACE(testing::Message() << activation_name(kind) << " kernel " << window.kernel_h
                                        << " residual " << residual);
        const int64_t channels = window.kernel_h == 3 ? 16 : 32;  // Winograd's, patches
        Graph graph;
        const ValueId x = graph.add_input({9, 6, channels});
        ValueId y = graph.add(std::make_shared<Conv2dOp>(Conv2dOp::Options{
                                  .filters = channels, .window = window, .bias = residual}),
                              {x});
        if (residual) y = graph.add(std::make_shared<AddOp>(), {x, y});
        graph.add(std::make_shared<ActivationOp>(kind, 0.1f), {y});
        Rig rig(graph, mean_squared_error(), 3);
        const Rig::Outcome expected = rig.run_reference(true, true),
                           actual = rig.run_plan({.input_gradients = true});
        expect_close(actual.output, expected.output, 1e-5f, "output");
        expect_close(actual.gradients, expected.gradients, 1e-5f, "gradients");
        expect_close(actual.input_gradient, expected.input_gradient, 1e-5f, "input gradient");
      }
    }
  }
}

// A convolution, a relu or none, and a max pool of 2×2 as one kernel.
Graph pooled_graph(const ConvCase& c, bool relu) {
  Graph graph = graph_of_conv(c);
  ValueId y = graph.output();
  if (relu) y = graph.add(std::make_shared<ActivationOp>(ActivationKind::kRelu, 0.0f), {y});
  graph.add(
      std::make_shared<Pool2dOp>(
          Pool2dOp::Mode::kMax, Window{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}),
      {y});
  return graph;
}

TEST(OwnConv, PoolsItsOutput) {
  int64_t turn = 0;
  for (const int64_t channels : {1, 2, 3, 4}) {
    for (const int64_t filters : {8, 16, 24, 40}) {
      for (const Window& window : {square(3, 1, 0), square(3, 1, 1), square(3, 1, 2), same(3, 1)}) {
        for (const bool relu : {false, true}) {
          ++turn;
          const ConvCase c{.height = 4 + turn % 7,
                           .width = 4 + turn % 5,
                           .channels = channels,
                           .filters = filters,
                           .window = window,
                           .rows = 1 + turn % 3,
                           .bias = turn % 4 != 0};
          SCOPED_TRACE(testing::PrintToString(c));
          const bool accumulate = turn % 3 == 0;
          Rig rig(pooled_graph(c, relu), nullptr, c.rows);
          const Rig::Outcome expected = rig.run_reference(true, false, accumulate ? 0.5f : 0.0f);
          const Rig::Outcome actual = rig.run_plan({}, accumulate ? 0.5f : 7.0f, accumulate);
          expect_close(actual.output, expected.output, 5e-6f, "output");
          expect_close(actual.gradients, expected.gradients, 5e-6f, "gradients");
        }
      }
    }
  }
}

// The fused kernel gives what the convolution and the pool give one after the other.
TEST(OwnConv, PoolsTheSameInTrainingAndInference) {
  Rig rig(pooled_graph({28, 28, 1, 32, square(3, 1, 0), 4}, true), nullptr, 4);
  EXPECT_EQ(rig.run_plan({.training = false}).output, rig.run_plan({}).output);
  expect_close(rig.run_plan({}).output, rig.run_plan({.fuse = false}).output, 5e-6f, "output");
}

// Pooled, Winograd's and strided convolutions, with a projection around two of them.
Graph every_kernel() {
  Graph graph = pooled_graph({21, 18, 1, 16, square(3, 1, 1), 1}, true);
  const auto conv = [&](ValueId from, int64_t filters, const Window& window) {
    return graph.add(
        std::make_shared<Conv2dOp>(Conv2dOp::Options{.filters = filters, .window = window}),
        {from});
  };
  const ValueId x = conv(graph.output(), 32, square(3, 1, 1));
  const ValueId projected = conv(x, 32, square(1, 2, 0));
  const ValueId through = conv(conv(x, 32, square(3, 2, 1)), 32, square(3, 1, 1));
  graph.add(std::make_shared<AddOp>(), {projected, through});
  return graph;
}

TEST(OwnConv, LanesDoNotChangeTheBits) {
  const Rig rig(every_kernel(), mean_squared_error(), 11);
  const auto gradients = [&](int lanes) {
    Executor executor(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(),
                      {.lanes = lanes, .shards = 4, .micro_batch = 2});
    executor.gradient(
        {.samples = rig.samples, .features = rig.features.data(), .labels = rig.labels.data()});
    std::vector<Floats> shards;
    for (const float* shard : executor.gradients())
      shards.push_back(rig.only_parameters(Floats(shard, shard + rig.space.total_floats())));
    return shards;
  };
  const std::vector<Floats> one = gradients(1);
  EXPECT_EQ(gradients(2), one);
  EXPECT_EQ(gradients(3), one);
}

TEST(OwnConv, WeightsAndGradientMayMove) {
  const Rig rig(every_kernel(), mean_squared_error(), 11);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto compute = [&](Executor& executor) {
      executor.gradient(
          {.samples = rig.samples, .features = rig.features.data(), .labels = rig.labels.data()});
    };
    const ExecutorOptions options{.shards = 1, .precision = precision};
    Executor there(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(), options);
    compute(there);
    const Floats elsewhere(rig.space.total_floats(), 0.25f);
    Executor moved(rig.graph, rig.loss, {}, rig.space, rig.moments, elsewhere.data(), options);
    compute(moved);
    Floats gradient(rig.space.total_floats());
    moved.move_to(rig.weights.data(), gradient.data());
    moved.refresh();
    compute(moved);
    const float* const wanted = there.gradients()[0];
    EXPECT_EQ(rig.only_parameters(gradient),
              rig.only_parameters(Floats(wanted, wanted + rig.space.total_floats())));
  }
}

TEST(OwnConv, KernelsTogetherMatchTheReference) {
  Rig rig(every_kernel(), mean_squared_error(), 3);
  for (const bool input_gradients : {false, true}) {
    const Rig::Outcome expected = rig.run_reference(true, input_gradients, 0.5f);
    const Rig::Outcome actual = rig.run_plan({.input_gradients = input_gradients}, 0.5f, true);
    expect_close(actual.output, expected.output, 2e-5f, "output");
    expect_close(actual.gradients, expected.gradients, 2e-5f, "gradients");
    if (input_gradients)
      expect_close(actual.input_gradient, expected.input_gradient, 2e-5f, "input gradient");
  }
}

}  // namespace
}  // namespace starling
