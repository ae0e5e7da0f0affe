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
  Fuser(const Graph& graph, bool enabled, bool pooled_convolutions)
      : graph_(graph),
        enabled_(enabled),
        pooled_convolutions_(pooled_convolutions),
        done_(graph.nodes().size(), false) {}

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
    } else if (ride_pool(group, index)) {
      // all of it is one kernel
    } else if (as<DenseOp>(graph_, index) || as<Conv2dOp>(graph_, index)) {
      ride_residual(group, index);
      ride_activation(group);
    } else if (as<AddOp>(graph_, index)) {
      ride_activation(group);
    } else if (as<BatchNormOp>(graph_, index)) {
      ride_residual(group, index);
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
    return pool && pool->mode == Pool2dOp::Mode::kMax && has_pool_kernel(*pool);
  }

  // Takes the max pool behind this convolution, and the relu between, if there is a kernel for it.
  bool ride_pool(Group& group, int index) {
    const auto* conv = as<Conv2dOp>(graph_, index);
    if (!pooled_convolutions_ || !conv || group.inputs[0] != graph_.inputs()[0]) return false;
    int next = only_reader(graph_, group.output), activation = -1;
    const auto* relu = as<ActivationOp>(graph_, next);
    if (relu && relu->activation == ActivationKind::kRelu) {
      activation = next;
      next = only_reader(graph_, graph_.node(next).output);
    }
    if (!is_max_pool(next) || !pools_in_registers(*conv, next)) return false;
    group.activation = activation;
    group.pool = next;
    group.output = graph_.node(next).output;
    for (const int node : {activation, next}) {
      if (node >= 0) done_[static_cast<size_t>(node)] = true;
    }
    return true;
  }

  // Whether tensor/conv_pool.h has these windows and channels.
  bool pools_in_registers(const Conv2dOp& conv, int pool) const {
    constexpr int64_t kFewChannels = 4;
    const Window& window = conv.options.window;
    const Shape& pooled = graph_.value(graph_.node(pool).inputs[0]).shape;
    const Window over = as<Pool2dOp>(graph_, pool)->window.resolved(pooled[0], pooled[1]);
    const bool conv_fits = window.kernel_h == 3 && window.kernel_w == 3 && window.stride_h == 1 &&
                           window.stride_w == 1 && conv.options.groups == 1 &&
                           conv.options.filters % 8 == 0 &&
                           graph_.value(graph_.inputs()[0]).shape[2] <= kFewChannels;
    return conv_fits && over.kernel_h == 2 && over.kernel_w == 2 && over.stride_h == 2 &&
           over.stride_w == 2 && over.pad_top == 0 && over.pad_left == 0 &&
           2 * over.out_h(pooled[0]) <= pooled[0] && 2 * over.out_w(pooled[1]) <= pooled[1];
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
    // A frozen node may have no backward pass, and the residual's gradient goes through it.
    if (!as<AddOp>(graph_, add) || !graph_.node(main).trainable) return;
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
  const bool enabled_, pooled_convolutions_;
  std::vector<bool> done_;
  std::vector<Group> groups_;
};

}  // namespace

bool has_pool_kernel(const Pool2dOp& pool) {
  return pool.window.kernel_h * pool.window.kernel_w <= 256;
}

std::vector<Group> fuse(const Graph& graph, bool enabled, bool pooled_convolutions) {
  return Fuser(graph, enabled, pooled_convolutions).run();
}

}  // namespace starling
