// For tests of plans: operators by short names, in chains.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/operators.h"

namespace starling::testing_plans {

inline OperatorPtr dense(int64_t units = 4) {
  return std::make_shared<DenseOp>(DenseOp::Options{.units = units});
}
inline OperatorPtr conv(int64_t filters = 4, int64_t kernel = 3, int64_t stride = 1,
                        int64_t groups = 1, bool bias = true) {
  return std::make_shared<Conv2dOp>(Conv2dOp::Options{.filters = filters,
                                                      .window = {.kernel_h = kernel,
                                                                 .kernel_w = kernel,
                                                                 .stride_h = stride,
                                                                 .stride_w = stride,
                                                                 .same = true},
                                                      .groups = groups,
                                                      .bias = bias});
}
inline OperatorPtr activation(ActivationKind kind) {
  return std::make_shared<ActivationOp>(kind, 0.1f);
}
inline OperatorPtr relu() { return activation(ActivationKind::kRelu); }
inline OperatorPtr pool(Pool2dOp::Mode mode, int64_t size = 2) {
  return std::make_shared<Pool2dOp>(
      mode, Window{.kernel_h = size, .kernel_w = size, .stride_h = size, .stride_w = size});
}
inline OperatorPtr max_pool(int64_t size = 2) { return pool(Pool2dOp::Mode::kMax, size); }
inline OperatorPtr batch_norm() { return std::make_shared<BatchNormOp>(BatchNormOp::Options{}); }
inline OperatorPtr add() { return std::make_shared<AddOp>(); }
inline OperatorPtr flatten() { return std::make_shared<ReshapeOp>(std::nullopt); }

// Operators one after another.
inline Graph chain(const Shape& input, const std::vector<OperatorPtr>& operators) {
  Graph graph;
  ValueId x = graph.add_input(input);
  for (const OperatorPtr& op : operators) x = graph.add(op, {x});
  return graph;
}

}  // namespace starling::testing_plans
