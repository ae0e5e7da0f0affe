// Every operator as a plan of its own against PyTorch's numbers, fresh and added to a gradient
// that is there already.
#include <gtest/gtest.h>

#include "engine/plan_testing.h"
#include "golden.h"

namespace starling {
namespace {

using golden::OperatorCase;
using testing_plans::expect_close;
using testing_plans::Floats;
using testing_plans::Rig;

class PlanGolden : public testing::TestWithParam<OperatorCase> {};

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

TEST_P(PlanGolden, AddsToAGradientThatIsThere) {
  const OperatorCase& c = GetParam();
  if (!c.training) return;  // nothing to add in inference
  const Graph graph = graph_of(c);
  Rig rig = rig_of(c, graph);
  const Rig::Outcome outcome = rig.run_plan({.input_gradients = true}, 0.5f, true);
  expect_close(outcome.gradients, expected_gradients(c, graph, rig, 0.5f), 5e-6f,
               "parameter gradients");
}

std::vector<OperatorCase> one_input_cases() {
  std::vector<OperatorCase> cases;
  for (OperatorCase& c : golden::load_operator_cases()) {
    if (c.inputs.size() == 1) cases.push_back(std::move(c));  // add is in plan_test.cc
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Operators, PlanGolden, testing::ValuesIn(one_input_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling
