#include "engine/fusion.h"

namespace starling {
namespace {

template <typename Op>
const Op* as(const Graph& graph, int node) {
  return node < 0 ? nullptr : dynamic_cast<const Op*>(graph.node(node).op.get());
}

// The one node that reads `value`, or −1 when there are several or the value leaves the graph.
int only_reader(const Graph& graph, ValueId value) {
  const Value& v = graph.value(value);
  return v.consumers.size() == 1 && value != graph.output() ? v.consumers[0] : -1;
}

// An activation whose backward pass is told by its output can be applied in place.
bool told_by_output(const ActivationOp* op) {
  return op != nullptr && !op->backward_needs().inputs;
}

class Fuser {
 public:
  Fuser(const Graph& graph, bool enabled)
      : graph_(graph), enabled_(enabled), done_(graph.nodes().size(), false) {}

  std::vector<Group> run() {
    for (int index = 0; index < static_cast<int>(graph_.nodes().size()); ++index) {
      if (!done_[static_cast<size_t>(index)]) add_group(index);
    }
    return std::move(groups_);
  }

 private:
  void add_group(int index) {
    const Node& node = graph_.node(index);
    Group group{.main = index, .output = node.output, .inputs = node.inputs};
    if (!enabled_) {
      // alone
    } else if (as<DenseOp>(graph_, index) || as<Conv2dOp>(graph_, index)) {
      ride_residual(group, index);
      ride_activation(group);
    } else if (as<AddOp>(graph_, index)) {
      ride_activation(group);
    } else if (as<BatchNormOp>(graph_, index)) {
      const auto* next = as<ActivationOp>(graph_, only_reader(graph_, group.output));
      if (next && next->activation == ActivationKind::kRelu && !feeds_max_pool(group.output))
        ride_activation(group);
    } else if (const auto* relu = as<ActivationOp>(graph_, index);
               relu && relu->activation == ActivationKind::kRelu) {
      const int pool = only_reader(graph_, group.output);
      if (is_max_pool(pool)) {
        group = {.main = pool,
                 .activation = index,
                 .output = graph_.node(pool).output,
                 .inputs = node.inputs};
        done_[static_cast<size_t>(pool)] = true;
      }
    }
    done_[static_cast<size_t>(index)] = true;
    groups_.push_back(std::move(group));
  }

  bool is_max_pool(int node) const {
    const auto* pool = as<Pool2dOp>(graph_, node);
    return pool && pool->mode == Pool2dOp::Mode::kMax;
  }

  // Whether `value` is read by a relu alone whose output is read by a max pool alone: the relu
  // then goes with the pool.
  bool feeds_max_pool(ValueId value) const {
    const int reader = only_reader(graph_, value);
    const auto* relu = as<ActivationOp>(graph_, reader);
    return relu && relu->activation == ActivationKind::kRelu &&
           is_max_pool(only_reader(graph_, graph_.node(reader).output));
  }

  void ride_residual(Group& group, int main) {
    const int add = only_reader(graph_, group.output);
    if (!as<AddOp>(graph_, add)) return;
    const Node& node = graph_.node(add);
    const ValueId other = node.inputs[0] == group.output ? node.inputs[1] : node.inputs[0];
    if (graph_.value(other).producer > main) return;  // not there yet when the product runs
    group.residual = add;
    group.residual_input = other;
    group.output = node.output;
    done_[static_cast<size_t>(add)] = true;
  }

  void ride_activation(Group& group) {
    const int reader = only_reader(graph_, group.output);
    if (!told_by_output(as<ActivationOp>(graph_, reader)) || feeds_max_pool(group.output)) return;
    group.activation = reader;
    group.output = graph_.node(reader).output;
    done_[static_cast<size_t>(reader)] = true;
  }

  const Graph& graph_;
  const bool enabled_;
  std::vector<bool> done_;
  std::vector<Group> groups_;
};

}  // namespace

std::vector<Group> fuse(const Graph& graph, bool enabled) { return Fuser(graph, enabled).run(); }

}  // namespace starling
