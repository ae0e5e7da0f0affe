// Fusion: which nodes run as one kernel. The forward pass is cut into groups, each with one main
// node and what rides along with it:
//   dense or conv2d  + add (residual) + activation       in the product's own pass over its output
//   batch_norm       + add (residual) + relu
//   add              + activation
//   relu             + max pool                          as pool, then relu on a quarter of the
//                                                        data: max and relu commute
//   conv2d + relu    + max pool                          where `pooled_convolutions` allows it and
//                                                        the image has few channels: the
//                                                        convolution's output is never written
// A node rides along only if nobody else reads the value between, so that the value need not exist.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace starling {

struct Group {
  int main = -1;        // dense, conv2d, batch_norm, max pool, or any other node alone
  int activation = -1;  // the activation that rides along
  int residual = -1;    // the add that rides along
  int pool = -1;        // the max pool that rides along with a convolution
  ValueId residual_input = -1;
  ValueId output = -1;          // the value that the group makes
  std::vector<ValueId> inputs;  // of the main node, the residual not among them
};

// The groups in an order in which they can run; without `enabled`, each node is its own group.
// `pooled_convolutions` takes a max pool into the convolution of the graph's input: for plans that
// don't want that input's gradient.
std::vector<Group> fuse(const Graph& graph, bool enabled = true, bool pooled_convolutions = false);

}  // namespace starling
