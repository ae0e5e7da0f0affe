// Graph: the forward computation of a model as operators over values with known shapes.
//
// Nodes are in an order in which they can run. Shapes are those of one sample. Parameters and
// running statistics are named by their node ("conv2d_1.weight"), so that a subgraph (a pipeline
// stage) means the same weights as the whole. Operator ids are kept in a subgraph too: they key
// random numbers. A Graph is built once, then only read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/operators.h"

namespace starling {

using ValueId = int;

struct Value {
  Shape shape;
  int producer = -1;           // the node that makes it; -1 for an input of the graph
  std::vector<int> consumers;  // nodes that read it, in order; a node twice if it reads it twice
};

struct Node {
  std::string name;  // of the layer: "conv2d_1"
  OperatorPtr op;
  uint32_t operator_id = 0;
  std::vector<ValueId> inputs;
  ValueId output = -1;
  std::vector<ParameterSpec> parameters;  // names are full: "conv2d_1.weight"
  std::optional<MomentsSpec> moments;
  bool trainable = true;
};

// What training does with a node's parameters.
struct NodeTraining {
  bool trainable = true;
  std::optional<double> weight_decay = {};  // of those that decay; unset: the optimizer's
};

class Graph {
 public:
  ValueId add_input(const Shape& shape);

  // Appends a node; its name is made from the operator's kind when none is given. Throws Error
  // that names the layer when shapes don't fit, the name is taken or the weight decay out of range.
  ValueId add(OperatorPtr op, std::vector<ValueId> inputs, std::string name = {},
              const NodeTraining& training = {});

  void set_output(ValueId value);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Value> values() const { return values_; }
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  std::span<const ValueId> inputs() const { return inputs_; }
  ValueId output() const { return output_; }
  std::vector<Shape> input_shapes(const Node& node) const;

  // Nodes first … last−1 as a graph of their own. Its inputs are the values that come from
  // outside, in the order of first use; its output is the one value that is used outside.
  // Throws Error when there is not exactly one, and when there are no such nodes.
  Graph subgraph(int first, int last) const;
  // The same with a given output, whatever else is read outside; nodes that it does not depend on
  // are left out.
  Graph subgraph(int first, int last, ValueId output) const;

 private:
  // For each node, whether `output` depends on it.
  std::vector<bool> nodes_before(ValueId output) const;
  Graph cut(int first, int last, std::vector<ValueId>& leaving,
            std::optional<ValueId> output) const;

  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<ValueId> inputs_;
  ValueId output_ = -1;
};

// What the backward pass computes: which values have a gradient, and for which nodes, last first.
struct Backward {
  struct Step {
    int node;
    std::vector<bool> wants_input;  // per input of the node
    bool wants_parameters;
  };
  std::vector<bool> has_gradient;  // per value
  std::vector<Step> steps;
};

// The backward pass of `graph`. With `input_gradients`, those of the graph's inputs are wanted too
// (a pipeline stage hands them on).
Backward differentiate(const Graph& graph, bool input_gradients);

}  // namespace starling
