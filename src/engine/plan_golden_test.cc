// Every operator as a plan of its own against PyTorch's numbers, fresh and added to a gradient
// that is there already.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan_testing.h"
#include "golden.h"

namespace starling {
namespace {

using golden::OperatorCase;
using testing_plans::expect_close;
using testing_plans::Floats;
using testing_plans::Rig;

class PlanGolden : public testing::TestWithParam<OperatorCase> {};
// The cases with parameters. What is added to a gradient of an input is in plan_operators_test.cc.
class PlanGoldenParameters : public PlanGolden {};

Graph graph_of(const OperatorCase& c) {
  Graph graph;
  graph.add(c.op, {graph.add_input(c.input_shapes[0])}, "op");
  return graph;
}

Rig rig_of(const OperatorCase& c, const Graph& graph) {
  Rig rig(graph, nullptr, c.rows);
  rig.features = c.inputs[0];
  rig.grad_output = c.grad_output.empty() ? Floats(c.output.size(), 0.0f) : c.grad_output;
  for (size_t i = 0; i < c.parameters.size(); ++i) {
    const Slice& slice = *rig.space.find(graph.node(0).parameters[i].name);
    std::copy(c.parameters[i].begin(), c.parameters[i].end(), rig.weights.begin() + slice.offset);
  }
  if (!c.running_mean.empty()) {
    rig.statistics = c.running_mean;
    rig.statistics.insert(rig.statistics.end(), c.running_variance.begin(),
                          c.running_variance.end());
  }
  if (!c.samples.empty()) {
    rig.seed = c.seed;
    rig.epoch = c.epoch;
    rig.samples = c.samples;
  }
  return rig;
}

Floats expected_gradients(const OperatorCase& c, const Graph& graph, const Rig& rig, float start) {
  Floats flat(rig.space.total_floats(), 0.0f);
  for (size_t i = 0; i < c.grad_parameters.size(); ++i) {
    const Slice& slice = *rig.space.find(graph.node(0).parameters[i].name);
    for (size_t e = 0; e < slice.size; ++e)
      flat[slice.offset + e] = c.grad_parameters[i][e] + start;
  }
  return rig.only_parameters(flat);
}

TEST_P(PlanGolden, MatchesPyTorch) {
  const OperatorCase& c = GetParam();
  const Graph graph = graph_of(c);
  Rig rig = rig_of(c, graph);
  const Rig::Outcome outcome =
      rig.run_plan({.training = c.training, .input_gradients = c.training});
  expect_close(outcome.output, c.output, 5e-6f, "output");
  if (!c.training) return;
  expect_close(outcome.input_gradient, c.grad_inputs[0], 5e-6f, "input gradient");
  expect_close(outcome.gradients, expected_gradients(c, graph, rig, 0), 5e-6f,
               "parameter gradients");
}

TEST_P(PlanGoldenParameters, AddToAGradientThatIsThere) {
  const OperatorCase& c = GetParam();
  const Graph graph = graph_of(c);
  Rig rig = rig_of(c, graph);
  const Rig::Outcome outcome = rig.run_plan({.input_gradients = true}, 0.5f, true);
  expect_close(outcome.gradients, expected_gradients(c, graph, rig, 0.5f), 5e-6f,
               "parameter gradients");
}

// A plan has one input, so the two of add are the halves of one, cut apart by products with 1 and
// 0, which are exact.
TEST(PlanGoldenAdd, MatchesPyTorch) {
  const std::vector<OperatorCase> cases = golden::load_operator_cases();
  const auto found =
      std::find_if(cases.begin(), cases.end(), [](const auto& c) { return c.inputs.size() == 2; });
  ASSERT_NE(found, cases.end());
  const OperatorCase& c = *found;
  const size_t half = static_cast<size_t>(c.output_shape.elements());
  Graph graph;
  const ValueId x = graph.add_input({2 * c.output_shape.elements()});
  std::vector<ValueId> inputs;
  for (const char* name : {"first", "second"}) {
    const ValueId cut = graph.add(std::make_shared<DenseOp>(DenseOp::Options{
                                      .units = c.output_shape.elements(), .bias = false}),
                                  {x}, name);
    inputs.push_back(graph.add(std::make_shared<ReshapeOp>(c.output_shape), {cut}));
  }
  graph.add(c.op, inputs);
  const auto side_by_side = [&](const std::vector<Floats>& halves) {
    Floats rows;
    for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
      for (const Floats& values : halves) {
        rows.insert(rows.end(), values.begin() + static_cast<std::ptrdiff_t>(row * half),
                    values.begin() + static_cast<std::ptrdiff_t>((row + 1) * half));
      }
    }
    return rows;
  };
  Rig rig(graph, nullptr, c.rows);
  rig.features = side_by_side(c.inputs);
  rig.grad_output = c.grad_output;
  std::fill(rig.weights.begin(), rig.weights.end(), 0.0f);
  for (size_t i = 0; i < half; ++i) {
    rig.weights[rig.space.find("first.weight")->offset + i * 2 * half + i] = 1;
    rig.weights[rig.space.find("second.weight")->offset + i * 2 * half + half + i] = 1;
  }
  for (const bool fuse : {true, false}) {
    const Rig::Outcome outcome = rig.run_plan({.input_gradients = true, .fuse = fuse});
    expect_close(outcome.output, c.output, 1e-6f, "output");
    expect_close(outcome.input_gradient, side_by_side(c.grad_inputs), 1e-6f, "input gradients");
  }
}

std::vector<OperatorCase> one_input_cases(bool with_parameters) {
  std::vector<OperatorCase> cases;
  for (OperatorCase& c : golden::load_operator_cases()) {
    if (c.inputs.size() == 1 && (!with_parameters || !c.grad_parameters.empty()))
      cases.push_back(std::move(c));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Operators, PlanGolden, testing::ValuesIn(one_input_cases(false)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Operators, PlanGoldenParameters, testing::ValuesIn(one_input_cases(true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling
