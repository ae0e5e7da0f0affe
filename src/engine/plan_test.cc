// Whole models: fused plans against the reference executor.
#include "engine/plan.h"

#include <gtest/gtest.h>

#include "engine/lanes.h"
#include "engine/operators_testing.h"
#include "engine/plan_testing.h"

namespace starling {
namespace {

using namespace testing_plans;

OperatorPtr dropout() { return std::make_shared<DropoutOp>(0.3f); }
OperatorPtr global_average() { return std::make_shared<GlobalPool2dOp>(Pool2dOp::Mode::kAverage); }

Graph mlp() {
  return chain({13}, {dense(17), relu(), dense(9), activation(ActivationKind::kTanh), dense(5)});
}
Graph cnn() {
  return chain({9, 11, 3},
               {conv(16, 3), relu(), max_pool(2), conv(8, 3, 2), relu(), flatten(), dense(5)});
}
Graph normalised() {
  return chain({8, 8, 2},
               {conv(8, 3, 1, 1, false), batch_norm(), relu(), dropout(), conv(8, 3, 1, 4),
                batch_norm(), relu(), max_pool(2), dropout(), global_average(), dense(5)});
}
Graph activations() {
  return chain(
      {12}, {dense(8), activation(ActivationKind::kGelu), dense(8),
             activation(ActivationKind::kSigmoid), dense(8), activation(ActivationKind::kLeakyRelu),
             dense(8), std::make_shared<SoftmaxOp>(), dense(5)});
}
// The joins that are hard for gradients: a value read three times, an add of a value to itself, an
// activation behind an add, a residual that rides along with a convolution.
Graph residual() {
  Graph graph;
  const ValueId x = graph.add_input({6, 6, 8});
  const ValueId a = graph.add(relu(), {graph.add(conv(8, 3), {x})});
  const ValueId b = graph.add(relu(), {graph.add(add(), {a, graph.add(conv(8, 3), {a})})});
  const ValueId c = graph.add(add(), {b, b});
  const ValueId d = graph.add(add(), {graph.add(batch_norm(), {graph.add(conv(8, 3), {c})}), a});
  const ValueId e = graph.add(relu(), {d});
  const ValueId f = graph.add(add(), {graph.add(relu(), {e}), graph.add(max_pool(1), {e})});
  graph.add(dense(5), {graph.add(global_average(), {f})});
  return graph;
}

struct ModelCase {
  const char* name;
  Graph graph;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

class PlanModels : public testing::TestWithParam<ModelCase> {};

// TrainStep relies on it: otherwise every step would look through its gradient.
TEST_P(PlanModels, HealthyNumbersRaiseNoFlag) {
  Lanes lanes(1);
  for (const LossPtr& loss :
       {softmax_cross_entropy(), binary_cross_entropy(), mean_squared_error()}) {
    Rig rig(GetParam().graph, loss, 7);
    lanes.run([&](int) { rig.run_plan({}); });
    EXPECT_FALSE(lanes.raised()) << loss->kind();
  }
}

TEST_P(PlanModels, TrainingMatchesTheReference) {
  for (const bool fuse : {true, false}) {
    for (const int64_t rows : {1, 2, 7}) {
      for (const LossPtr& loss :
           {softmax_cross_entropy(), binary_cross_entropy(), mean_squared_error()}) {
        SCOPED_TRACE(testing::Message() << loss->kind() << " rows " << rows << " fuse " << fuse);
        Rig rig(GetParam().graph, loss, rows);
        const Rig::Outcome expected = rig.run_reference(true, true, 0.5f);
        const Rig::Outcome actual =
            rig.run_plan({.input_gradients = true, .fuse = fuse}, 0.5f, true);
        expect_close(actual.output, expected.output, 2e-5f, "output");
        expect_close(actual.losses, expected.losses, 2e-5f, "losses");
        // One row per channel has no variance of its own: its gradient is rounding alone.
        if (rig.moments.size() > 0 && rows == 1) continue;
        expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
        expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
        for (size_t i = 0; i < expected.moments.size(); ++i) {
          ASSERT_NEAR(actual.moments[i], expected.moments[i],
                      1e-5 * (1 + std::abs(expected.moments[i])));
        }
      }
    }
  }
}

TEST_P(PlanModels, OverwritesWhatLiesInTheGradient) {
  Rig rig(GetParam().graph, softmax_cross_entropy(), 4);
  EXPECT_EQ(rig.run_plan({}, 123.0f, false).gradients, rig.run_plan({}, 0.0f, false).gradients);
}

TEST_P(PlanModels, InferenceMatchesTheReference) {
  Rig rig(GetParam().graph, softmax_cross_entropy(), 6);
  const Rig::Outcome expected = rig.run_reference(false, false);
  const Rig::Outcome actual = rig.run_plan({.training = false});
  expect_close(actual.output, expected.output, 2e-5f, "output");
  expect_close(actual.losses, expected.losses, 2e-5f, "losses");
}

TEST_P(PlanModels, Bf16IsNearF32AndNotTheSame) {
  Rig rig(GetParam().graph, softmax_cross_entropy(), 8);
  const Rig::Outcome wide = rig.run_plan({}),
                     narrow = rig.run_plan({.precision = Precision::kBf16});
  expect_close(narrow.output, wide.output, 0.1f, "output");
  EXPECT_NE(narrow.output, wide.output);
  EXPECT_NE(narrow.gradients, wide.gradients);
}

TEST_P(PlanModels, ParametersAreReadyWhenThePlanSays) {
  Rig rig(GetParam().graph, softmax_cross_entropy(), 4);
  const std::unique_ptr<Plan> plan = rig.compile({});
  Floats gradients(rig.space.total_floats(), 0.0f);
  const Frame frame = rig.frame(gradients, true, false);
  std::vector<Floats> when_ready(rig.space.slices().size());
  const auto slice_values = [&](size_t s) {
    const Slice& slice = rig.space.slices()[s];
    return Floats(gradients.begin() + static_cast<std::ptrdiff_t>(slice.offset),
                  gradients.begin() + static_cast<std::ptrdiff_t>(slice.offset + slice.size));
  };
  Lanes(1).run([&](int) {
    for (size_t k = 0; k < plan->kernels().size(); ++k) {
      plan->kernels()[k]->run(frame);
      for (size_t s = 0; s < when_ready.size(); ++s) {
        if (plan->ready_after(s) == static_cast<int>(k)) when_ready[s] = slice_values(s);
      }
    }
  });
  int last = -1;
  for (size_t s = 0; s < when_ready.size(); ++s) {
    EXPECT_EQ(when_ready[s], slice_values(s)) << rig.space.slices()[s].name;
    EXPECT_GE(plan->ready_after(s), last) << "slices are in the order in which they are ready";
    last = plan->ready_after(s);
  }
  EXPECT_EQ(plan->ready_after(rig.space, rig.space.buckets()[0]), last);
}

INSTANTIATE_TEST_SUITE_P(Models, PlanModels,
                         testing::Values(ModelCase{"Mlp", mlp()}, ModelCase{"Cnn", cnn()},
                                         ModelCase{"Normalised", normalised()},
                                         ModelCase{"Activations", activations()},
                                         ModelCase{"Residual", residual()}),
                         [](const auto& test) { return test.param.name; });

TEST(PlanMemory, InferenceOfAnyDepthNeedsThatOfTwoLayers) {
  const auto arena_floats = [](size_t depth, int64_t channels) {
    Rig rig(chain({32, 32, channels}, std::vector<OperatorPtr>(depth, conv(channels, 3))), nullptr,
            4);
    return rig.compile({.training = false})->arena_floats();
  };
  EXPECT_EQ(arena_floats(3, 5), arena_floats(20, 5));
  EXPECT_EQ(arena_floats(3, 5), 2u * 4 * 32 * 32 * 5);
  // Our own convolutions have scratch in the arena, which all layers share.
  EXPECT_EQ(arena_floats(3, 8), arena_floats(20, 8));
}

// A pipeline stage is a plan of a subgraph: two stages give the bits of the whole.
TEST(PlanStages, TwoStagesGiveTheBitsOfTheWhole) {
  const Graph whole = cnn();
  Rig rig(whole, softmax_cross_entropy(), 4);
  const Rig::Outcome expected = rig.run_plan({.input_gradients = true});

  const int cut = 3;  // after the pool
  Rig front(whole.subgraph(0, cut), nullptr, 4);
  Rig back(whole.subgraph(cut, static_cast<int>(whole.nodes().size())), softmax_cross_entropy(), 4);
  for (Rig* part : {&front, &back}) {
    for (const Slice& slice : part->space.slices()) {
      const Slice& from = *rig.space.find(slice.name);
      std::copy_n(rig.weights.begin() + from.offset, slice.size,
                  part->weights.begin() + slice.offset);
    }
    part->samples = rig.samples;
  }
  front.features = rig.features;
  back.features = front.run_plan({.input_gradients = true}).output;
  back.labels = rig.labels;
  const Rig::Outcome second = back.run_plan({.input_gradients = true});
  front.grad_output = second.input_gradient;
  const Rig::Outcome first = front.run_plan({.input_gradients = true});
  EXPECT_EQ(second.output, expected.output);
  EXPECT_EQ(first.input_gradient, expected.input_gradient);
  Floats gradients = second.gradients;  // the space has the last layers first
  gradients.insert(gradients.end(), first.gradients.begin(), first.gradients.end());
  EXPECT_EQ(gradients, expected.gradients);
}

}  // namespace
}  // namespace starling
