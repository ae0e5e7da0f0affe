// Every kind of operator beside a way past it: what it reads goes into an add, too, so that its
// input's gradient is the sum of two. Plans against the reference executor.
#include <gtest/gtest.h>

#include <set>

#include "engine/operators_testing.h"
#include "engine/plan_testing.h"
#include "golden.h"

namespace starling {
namespace {

using namespace testing_plans;

struct OperatorKind {
  std::string name;
  OperatorPtr op;
  Shape input;
  int inputs = 1;
};

void PrintTo(const OperatorKind& kind, std::ostream* out) { *out << kind.name; }

// Where the operator stands. The pass backward comes to what stands last first: its gradient is
// the first, the other is added to it.
struct Place {
  bool last;      // behind the add
  bool at_input;  // reads the graph's input, not a value that a kernel made
};

//   x → tanh → v → operator    → flatten → dense ↘
//              v → add(v, x)   → flatten → dense → add
Graph beside(const OperatorKind& kind, Place place) {
  Graph graph;
  const ValueId x = graph.add_input(kind.input);
  const ValueId v = place.at_input ? x : graph.add(activation(ActivationKind::kTanh), {x});
  const std::vector<ValueId> all{v, x};
  const std::vector<ValueId> inputs(all.begin(), all.begin() + kind.inputs);
  const auto own = [&] { return graph.add(kind.op, inputs); };
  const auto past = [&] { return graph.add(add(), all); };
  const ValueId a = place.last ? past() : own(), b = place.last ? own() : past();
  const ValueId left = graph.add(dense(5), {graph.add(flatten(), {a})});
  const ValueId right = graph.add(dense(5), {graph.add(flatten(), {b})});
  graph.add(add(), {left, right});
  return graph;
}

class PlanOperators : public testing::TestWithParam<OperatorKind> {};

TEST_P(PlanOperators, AddToTheGradientOfTheirInput) {
  for (const bool last : {false, true}) {
    for (const bool at_input : {false, true}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << "last " << last << " at input " << at_input << " fuse " << fuse);
        Rig rig(beside(GetParam(), {.last = last, .at_input = at_input}), nullptr, 3);
        const Rig::Outcome expected = rig.run_reference(true, true, 0.5f);
        const Rig::Outcome actual =
            rig.run_plan({.input_gradients = true, .fuse = fuse}, 0.5f, true);
        expect_close(actual.output, expected.output, 2e-5f, "output");
        expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
        expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
      }
    }
  }
}

TEST_P(PlanOperators, GiveTheReferencesOutputInInference) {
  Rig rig(beside(GetParam(), {}), nullptr, 3);
  expect_close(rig.run_plan({.training = false}).output, rig.run_reference(false, false).output,
               2e-5f, "output");
}

std::vector<OperatorKind> kinds() {
  using Mode = Pool2dOp::Mode;
  const Shape image{6, 7, 3};
  const Window overlapping{
      .kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_top = 1, .pad_right = 1};
  // The fast pools count at most 256 places; such windows run through the operator itself.
  const Window large{.kernel_h = 17, .kernel_w = 17, .stride_h = 2, .stride_w = 3};
  std::vector<OperatorKind> all{
      {"Dense", dense(7), {11}},
      {"DenseOfImages", dense(7), image},
      {"Conv2d", conv(5, 3), image},
      {"Conv2dWide", conv(16, 3), {6, 7, 16}},
      {"Conv2dStride", conv(8, 3, 2), {6, 7, 8}},
      {"Conv2dGroups", conv(6, 3, 1, 3, false), image},
      {"MaxPool2d", max_pool(2), image},
      {"MaxPool2dOverlapping", std::make_shared<Pool2dOp>(Mode::kMax, overlapping), image},
      {"MaxPool2dLarge", std::make_shared<Pool2dOp>(Mode::kMax, large), {19, 20, 2}},
      {"AveragePool2d", pool(Mode::kAverage), image},
      {"AveragePool2dOverlapping", std::make_shared<Pool2dOp>(Mode::kAverage, overlapping), image},
      {"AveragePool2dLarge", std::make_shared<Pool2dOp>(Mode::kAverage, large), {19, 20, 2}},
      {"GlobalMaxPool2d", std::make_shared<GlobalPool2dOp>(Mode::kMax), image},
      {"GlobalAveragePool2d", std::make_shared<GlobalPool2dOp>(Mode::kAverage), image},
      {"Flatten", flatten(), image},
      {"Reshape", std::make_shared<ReshapeOp>(Shape{9, 14}), image},
      {"Softmax", std::make_shared<SoftmaxOp>(), {4, 9}},
      {"Dropout", std::make_shared<DropoutOp>(0.4f), image},
      {"BatchNorm", batch_norm(), image},
      {"Add", add(), image, 2},
  };
  const std::pair<const char*, ActivationKind> activations[] = {
      {"Relu", ActivationKind::kRelu}, {"LeakyRelu", ActivationKind::kLeakyRelu},
      {"Gelu", ActivationKind::kGelu}, {"Sigmoid", ActivationKind::kSigmoid},
      {"Tanh", ActivationKind::kTanh},
  };
  for (const auto& [name, kind] : activations) all.push_back({name, activation(kind), {5, 9}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlanOperators, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

// job_build_test.cc has that every layer has golden numbers.
TEST(PlanOperatorKinds, AreThoseWithGoldenNumbers) {
  std::set<std::string> here, golden;
  for (const OperatorKind& kind : kinds()) here.insert(kind.op->kind());
  for (const golden::OperatorCase& c : golden::load_operator_cases()) golden.insert(c.op->kind());
  EXPECT_EQ(here, golden);
}

}  // namespace
}  // namespace starling
