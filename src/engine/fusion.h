// Fusion: which nodes run as one kernel. The forward pass is cut into groups, each with one main
// node and what rides along with it:
//   dense or conv2d  + add (residual) + activation       where oneDNN multiplies, in its pass over
//                                                        the output; after our own products, in one
//                                                        pass of its own, which is small (below)
//   batch_norm       + add (residual) + relu
//   add              + activation
//   relu             + max pool                          as pool, then relu on a quarter of the
//                                                        data: max and relu commute
//   conv2d + relu    + max pool                          where `pooled_convolutions` allows it and
//                                                        the image has few channels: the
//                                                        convolution's output is never written
// A node rides along only if nobody else reads the value between, so that the value need not exist.
//
// Our own products do not add the bias when they store a tile, because there is next to nothing to
// gain: the output of a micro-batch is still in cache, and the pass over it, in whole vectors, is
// 0.2% of the instructions of a step's kernels (callgrind; MLP 784-256-10, 64 rows, AVX2), about
// one a float. With few rows the product's roles are exchanged and tiles are stored turned, in runs
// of at most six floats, added to earlier blocks of k: there it would be two or more a float.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/operators.h"

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

// Whether the pool runs as a kernel that others ride with: the winner's place is one byte.
bool has_pool_kernel(const Pool2dOp& pool);

// The groups in an order in which they can run; without `enabled`, each node is its own group.
// `pooled_convolutions` takes a max pool into the convolution of the graph's input: for plans that
// don't want that input's gradient.
std::vector<Group> fuse(const Graph& graph, bool enabled = true, bool pooled_convolutions = false);

}  // namespace starling
