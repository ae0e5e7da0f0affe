#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "starling/error.h"

namespace starling {
namespace {

void check_weight_decay(const ParameterSpec& parameter) {
  const double decay = parameter.weight_decay.value_or(0);
  if (decay >= 0 && decay <= 1e30) return;
  throw input_error(fmt::format("weight_decay = {} of {} is out of range", decay, parameter.name),
                    "weight_decay must be at least 0 (and at most 1e30)");
}

}  // namespace

ValueId Graph::add_input(const Shape& shape) {
  values_.push_back({.shape = shape, .producer = -1, .consumers = {}});
  inputs_.push_back(static_cast<ValueId>(values_.size()) - 1);
  return inputs_.back();
}

ValueId Graph::add(OperatorPtr op, std::vector<ValueId> inputs, std::string name,
                   const NodeTraining& training) {
  const std::string kind = op->kind();
  if (name.empty()) {
    const auto same = std::count_if(nodes_.begin(), nodes_.end(),
                                    [&](const Node& n) { return n.op->kind() == kind; });
    name = fmt::format("{}_{}", kind, same + 1);
  }
  if (std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.name == name; })) {
    throw input_error(fmt::format("two layers are named \"{}\"", name),
                      "give each layer its own name");
  }

  Node node{.name = name,
            .op = op,
            .operator_id = static_cast<uint32_t>(nodes_.size()),
            .inputs = std::move(inputs),
            .trainable = training.trainable};
  const std::vector<Shape> shapes = input_shapes(node);
  Shape output;
  try {
    output = op->infer(shapes);
    node.parameters = op->parameters(shapes);
    node.moments = op->moments(shapes);
  } catch (const Error& error) {
    throw Error(error.cause(), fmt::format("layer {}: {}", name, error.what()), error.hint());
  }
  for (ParameterSpec& parameter : node.parameters) {
    parameter.name = name + "." + parameter.name;
    if (training.weight_decay) parameter.weight_decay = training.weight_decay;
    check_weight_decay(parameter);
  }

  const int index = static_cast<int>(nodes_.size());
  for (ValueId input : node.inputs) values_[static_cast<size_t>(input)].consumers.push_back(index);
  values_.push_back({.shape = output, .producer = index, .consumers = {}});
  node.output = static_cast<ValueId>(values_.size()) - 1;
  nodes_.push_back(std::move(node));
  output_ = nodes_.back().output;
  return output_;
}

void Graph::set_output(ValueId value) { output_ = value; }

std::vector<Shape> Graph::input_shapes(const Node& node) const {
  std::vector<Shape> shapes;
  for (ValueId input : node.inputs) shapes.push_back(value(input).shape);
  return shapes;
}

std::vector<bool> Graph::nodes_before(ValueId output) const {
  std::vector<bool> before(nodes_.size(), false);
  const auto mark = [&](ValueId id) {
    const int producer = value(id).producer;
    if (producer >= 0) before[static_cast<size_t>(producer)] = true;
  };
  mark(output);
  for (size_t index = nodes_.size(); index-- > 0;) {
    if (!before[index]) continue;
    for (ValueId input : nodes_[index].inputs) mark(input);
  }
  return before;
}

Graph Graph::cut(int first, int last, std::vector<ValueId>& leaving,
                 std::optional<ValueId> output) const {
  if (first < 0 || first >= last || last > static_cast<int>(nodes_.size())) {
    throw input_error(fmt::format("nodes {} to {} can't be cut out of a graph of {} nodes", first,
                                  last - 1, nodes_.size()),
                      "give the first node, and one past the last");
  }
  Graph part;
  std::map<ValueId, ValueId> inside;  // of this graph → of the part
  const std::vector<bool> wanted =
      output ? nodes_before(*output) : std::vector<bool>(nodes_.size(), true);
  for (int index = first; index < last; ++index) {
    if (!wanted[static_cast<size_t>(index)]) continue;
    const int place_in_part = static_cast<int>(part.nodes_.size());
    Node copy = node(index);
    for (ValueId& input : copy.inputs) {
      auto [place, is_new] = inside.try_emplace(input, -1);
      if (is_new) place->second = part.add_input(value(input).shape);
      input = place->second;
      part.values_[static_cast<size_t>(input)].consumers.push_back(place_in_part);
    }
    const ValueId outer = copy.output, made = static_cast<ValueId>(part.values_.size());
    part.values_.push_back(
        {.shape = value(outer).shape, .producer = place_in_part, .consumers = {}});
    inside[outer] = copy.output = made;
    const std::vector<int>& readers = value(outer).consumers;
    const bool read_outside =
        std::any_of(readers.begin(), readers.end(), [&](int r) { return r >= last; });
    if (output ? outer == *output : outer == output_ || read_outside) leaving.push_back(made);
    part.nodes_.push_back(std::move(copy));
  }
  return part;
}

Graph Graph::subgraph(int first, int last) const {
  std::vector<ValueId> leaving;
  Graph part = cut(first, last, leaving, std::nullopt);
  if (leaving.size() != 1) {
    throw input_error(fmt::format("layers {} to {} can't be cut out: {} values leave them",
                                  node(first).name, node(last - 1).name, leaving.size()),
                      "cut where exactly one value passes from one part to the next");
  }
  part.output_ = leaving[0];
  return part;
}

Graph Graph::subgraph(int first, int last, ValueId output) const {
  std::vector<ValueId> leaving;
  Graph part = cut(first, last, leaving, output);
  part.output_ = leaving.at(0);
  return part;
}

Backward differentiate(const Graph& graph, bool input_gradients) {
  Backward backward;
  backward.has_gradient.assign(graph.values().size(), false);
  // A value has a gradient when something that wants one lies before it.
  if (input_gradients) {
    for (ValueId input : graph.inputs()) backward.has_gradient[static_cast<size_t>(input)] = true;
  }
  const auto has = [&](ValueId id) { return backward.has_gradient[static_cast<size_t>(id)]; };
  for (const Node& node : graph.nodes()) {
    const bool own = node.trainable && !node.parameters.empty();
    if (own || std::any_of(node.inputs.begin(), node.inputs.end(), has)) {
      backward.has_gradient[static_cast<size_t>(node.output)] = true;
    }
  }
  // It counts only when the output depends on it.
  std::vector<bool> reaches(graph.values().size(), false);
  reaches[static_cast<size_t>(graph.output())] = true;
  for (int index = static_cast<int>(graph.nodes().size()) - 1; index >= 0; --index) {
    const Node& node = graph.node(index);
    if (!reaches[static_cast<size_t>(node.output)] || !has(node.output)) continue;
    Backward::Step step{.node = index,
                        .wants_input = {},
                        .wants_parameters = node.trainable && !node.parameters.empty()};
    for (ValueId input : node.inputs) {
      step.wants_input.push_back(has(input));
      reaches[static_cast<size_t>(input)] = true;
    }
    backward.steps.push_back(std::move(step));
  }
  for (size_t id = 0; id < reaches.size(); ++id) {
    if (!reaches[id]) backward.has_gradient[id] = false;
  }
  return backward;
}

}  // namespace starling
