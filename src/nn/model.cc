#include "starling/model.h"

#include <fmt/format.h>

#include "graph/graph.h"
#include "starling/error.h"

namespace starling {
namespace {

std::shared_ptr<const Graph> finish(const std::shared_ptr<Graph>& graph, ValueId input,
                                    ValueId output) {
  if (graph->value(output).producer < 0) {
    throw input_error("the model has no layer",
                      "give it at least one layer, for instance dense(10)");
  }
  if (graph->inputs().size() != 1 || graph->inputs()[0] != input) {
    throw input_error("a model has exactly one input, made by input()",
                      "build all of its layers from one input()");
  }
  // Other nodes belong to something else that was built from the same input.
  return std::make_shared<const Graph>(
      graph->subgraph(0, graph->value(output).producer + 1, output));
}

}  // namespace

Model::Model(const Symbol& input, const Symbol& output) {
  if (input.graph() != output.graph()) {
    throw input_error("the model's output does not depend on its input",
                      "build the output from that input()");
  }
  graph_ = finish(input.graph(), input.id(), output.id());
}

Sequential::Sequential(const Shape& shape, const std::vector<Layer>& layers) {
  const Symbol start = input(shape);
  Symbol x = start;
  for (const Layer& layer : layers) x = layer(x);
  graph_ = finish(start.graph(), start.id(), x.id());
}

Shape Model::input_shape() const { return graph_->value(graph_->inputs()[0]).shape; }
Shape Model::output_shape() const { return graph_->value(graph_->output()).shape; }

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const Node& node : graph_->nodes()) {
    for (const ParameterSpec& parameter : node.parameters) count += parameter.shape.elements();
  }
  return count;
}

std::string Model::summary() const {
  std::string text =
      fmt::format("{:<24} {:<16} {:>12} {:>14}\n", "layer", "output", "parameters", "MFLOP/sample");
  text += fmt::format("{:<24} {:<16}\n", "input", input_shape().to_string());
  double total = 0;
  for (const Node& node : graph_->nodes()) {
    int64_t parameters = 0;
    for (const ParameterSpec& parameter : node.parameters) parameters += parameter.shape.elements();
    const double cost = node.op->flops(graph_->input_shapes(node)) / 1e6;
    total += cost;
    // fmt pads by display width, and × is one column wide.
    text += fmt::format("{:<24} {:<16} {:>12} {:>14.3f}\n", node.name,
                        graph_->value(node.output).shape.to_string(),
                        parameters > 0 ? fmt::format("{}", parameters) : "–", cost);
  }
  text += fmt::format("{:<24} {:<16} {:>12} {:>14.3f}\n", "total", "", parameter_count(), total);
  return text;
}

}  // namespace starling
