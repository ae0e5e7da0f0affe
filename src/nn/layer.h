// What a Layer is inside: something that adds nodes to a graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "starling/layer.h"

namespace starling {

class Layer::Impl {
 public:
  // Adds the layer's nodes for `inputs` and returns its output. An empty name means a numbered one.
  using Build = std::function<ValueId(Graph& graph, const std::vector<ValueId>& inputs,
                                      const std::string& name, const NodeTraining& training)>;

  explicit Impl(Build function) : build(std::move(function)) {}
  Build build;
  std::string name;
  NodeTraining training;

  // The layer as a part of one that is trained like this.
  static Layer inside(const NodeTraining& outer, const Layer& layer);
};

}  // namespace starling
