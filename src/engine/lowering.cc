#include "engine/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <typeinfo>

#include "engine/arena.h"
#include "engine/own_conv.h"
#include "starling/error.h"
#include "tensor/gemm.h"
#include "tensor/gemm_bf16.h"
#include "tensor/kernels.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

// By its type: a user's own loss may have the same name.
bool is_softmax_cross_entropy(const Loss& loss) {
  const LossPtr ours = softmax_cross_entropy();
  const Loss& known = *ours;
  return typeid(loss) == typeid(known);
}

}  // namespace

Lowering::Lowering(Plan& plan, const Graph& g, PlanResources r)
    : graph(g),
      options(plan.options_),
      resources(r),
      plan_(plan),
      groups_(fuse(g, plan.options_.fuse,
                   owns_convolutions(plan.options_) && !plan.options_.input_gradients)),
      values_(g.values().size()),
      gradients_(g.values().size()) {
  if (options.training) {
    backward_ = differentiate(graph, options.input_gradients);
    for (const Backward::Step& step : backward_.steps) steps_[step.node] = &step;
  }
}

void Lowering::run() {
  if (graph.inputs().size() != 1) {
    throw input_error(
        fmt::format("the model has {} inputs, one is supported", graph.inputs().size()),
        "concatenate the inputs into one");
  }
  plan_.ready_after_.assign(resources.parameters.slices().size(), -1);
  values_[static_cast<size_t>(graph.inputs()[0])] = {.space = Space::kFeatures};
  for (const Group& group : groups_) lower_forward(group);
  if (options.loss) lower_loss();
  plan_.output_ = value(graph.output());
  keep(plan_.output_);
  plan_.backward_begin_ = plan_.kernels_.size();
  if (options.training) {
    if (!options.loss)
      gradients_[static_cast<size_t>(graph.output())] = {.space = Space::kGradOutput};
    for (size_t i = groups_.size(); i-- > 0;) lower_backward(groups_[i]);
    if (options.input_gradients) {
      plan_.input_gradient_ = gradient(graph.inputs()[0]);
      keep(plan_.input_gradient_);
    }
  }
  plan_.arena_floats_ = place_buffers(plan_.buffers_);
}

size_t Lowering::floats(ValueId id) const {
  return static_cast<size_t>(rows() * graph.value(id).shape.elements());
}

const Backward::Step& Lowering::backward_step(const Group& group) const {
  return *steps_.at(group.main);
}

Ref Lowering::make_value(ValueId id) {
  const Ref ref = scratch(floats(id));
  set_value(id, ref);
  return ref;
}

void Lowering::set_value(ValueId id, const Ref& ref) { values_[static_cast<size_t>(id)] = ref; }

const Slice& Lowering::slice(const Node& n, size_t index) const {
  return *resources.parameters.find(n.parameters[index].name);
}

Ref Lowering::weights(const Node& n, size_t index) const {
  return {.space = Space::kWeights, .offset = slice(n, index).offset};
}

Lowering::Weights Lowering::next_weights(const Group& group) const {
  for (const Node& later : graph.nodes().subspan(static_cast<size_t>(group.main) + 1)) {
    if (!later.parameters.empty()) return {weights(later, 0), slice(later, 0).size};
  }
  return {weights(node(group), 0), 0};
}

Lowering::Target Lowering::parameter_gradient(const Node& n, size_t index) {
  const Slice& s = slice(n, index);
  int& ready = plan_.ready_after_[static_cast<size_t>(&s - resources.parameters.slices().data())];
  const bool adds = ready >= 0;
  ready = static_cast<int>(plan_.kernels_.size());  // the next kernel to be emitted, or a later one
  return {{.space = Space::kGradients, .offset = s.offset}, adds};
}

Ref Lowering::gradient_to_change(ValueId id) {
  const Ref now = gradient(id);
  if (now.buffer != nullptr && gradient_users_[now.buffer] == 1) return now;
  release_gradient(id);
  const Ref fresh = scratch(floats(id));
  gradients_[static_cast<size_t>(id)] = fresh;
  ++gradient_users_[fresh.buffer];
  return fresh;
}

Ref Lowering::contribution(ValueId id) { return scratch(floats(id)); }

void Lowering::contributed(ValueId id, const Ref& ref) {
  Ref& place = gradients_[static_cast<size_t>(id)];
  if (!place) {
    place = ref;
    ++gradient_users_[ref.buffer];
    return;
  }
  const Ref before = place, after = gradient_to_change(id);
  const int64_t n = static_cast<int64_t>(floats(id));
  emit("sum of gradients", {before, ref, after},
       [=](const Frame& frame) { add(n, before.in(frame), ref.in(frame), after.in(frame)); });
}

void Lowering::contribute_alias(ValueId id, const Ref& ref) { contributed(id, ref); }

void Lowering::release_gradient(ValueId id) {
  const Ref& ref = gradient(id);
  if (ref.buffer != nullptr) --gradient_users_[ref.buffer];
}

Ref Lowering::scratch(size_t count) {
  plan_.buffers_.push_back({.floats = count});
  return {.space = Space::kArena, .buffer = &plan_.buffers_.back()};
}

void Lowering::emit(std::unique_ptr<Kernel> kernel, const std::vector<Ref>& touched) {
  plan_.kernels_.push_back(std::move(kernel));
  for (const Ref& ref : touched) keep(ref);
}

void Lowering::keep(const Ref& ref) {
  auto* buffer = const_cast<ArenaBuffer*>(ref.buffer);
  if (buffer == nullptr) return;
  buffer->last = static_cast<int>(plan_.kernels_.size()) - 1;
  if (buffer->first < 0) buffer->first = buffer->last;
}

Ref Lowering::operand(const Ref& ref, size_t count, const std::string& label, OperandForm form) {
  const Ref rounded = scratch(count);
  const int64_t n = static_cast<int64_t>(count);
  if (form == OperandForm::kBf16) {
    emit(label + " to bf16", {ref, rounded}, [=](const Frame& frame) {
      to_bf16(n, ref.in(frame), reinterpret_cast<uint16_t*>(rounded.in(frame)));
    });
  } else {
    emit(label + " rounded to bf16", {ref, rounded},
         [=](const Frame& frame) { round_bf16(n, ref.in(frame), rounded.in(frame)); });
  }
  return rounded;
}

Ref Lowering::value_operand(ValueId id, const std::string& label, OperandForm form) {
  Ref& kept = operands_[{id, form}];
  if (!kept) kept = operand(value(id), floats(id), label, form);
  return kept;
}

void Lowering::lower_forward(const Group& group) {
  family_of(*node(group).op).forward(*this, group);
}

void Lowering::lower_backward(const Group& group) {
  if (!gradient(group.output) || steps_.find(group.main) == steps_.end()) return;
  family_of(*node(group).op).backward(*this, group);
  release_gradient(group.output);
}

void Lowering::lower_loss() {
  const ValueId id = graph.output();
  const Ref prediction = value(id), labels{.space = Space::kLabels};
  const Shape shape = graph.value(id).shape;
  const int64_t n = rows();
  const LossPtr loss = options.loss;
  const std::vector<MetricPtr> metrics = options.metrics;
  if (!metrics.empty()) {
    emit("metrics", {prediction}, [=](const Frame& frame) {
      for (size_t i = 0; i < metrics.size(); ++i) {
        metrics[i]->evaluate(n, shape, prediction.in(frame), labels.in(frame),
                             frame.metrics + static_cast<int64_t>(i) * n);
      }
    });
  }
  const bool wants_gradient = options.training && has_gradient(id);
  const Ref target = wants_gradient ? contribution(id) : Ref{};
  if (is_softmax_cross_entropy(*loss) && shape.rank() == 1) {
    emit("loss", {prediction, target}, [=](const Frame& frame) {
      softmax_cross_entropy(n, shape[0], prediction.in(frame), labels.in(frame), frame.loss_scale,
                            frame.losses, target ? target.in(frame) : nullptr);
    });
  } else {
    emit("loss", {prediction, target}, [=](const Frame& frame) {
      loss->forward(n, shape, prediction.in(frame), labels.in(frame), frame.losses);
      if (target)
        loss->backward(n, shape, prediction.in(frame), labels.in(frame), frame.loss_scale,
                       target.in(frame));
    });
  }
  if (wants_gradient) contributed(id, target);
}

const Family& family_of(const Operator& op) {
  static const Family* const families[] = {
      &kDenseFamily,      &kConvFamily,    &kPoolFamily,    &kGlobalPoolFamily, &kReshapeFamily,
      &kActivationFamily, &kSoftmaxFamily, &kDropoutFamily, &kBatchNormFamily,  &kAddFamily};
  for (const Family* family : families) {
    if (family->knows(op)) return *family;
  }
  return kCustomFamily;
}

void emit_epilogue(Lowering& lowering, const Group& group, const Ref& y, int64_t rows,
                   int64_t columns, bool with_bias) {
  const Node& node = lowering.node(group);
  const bool activate = group.activation >= 0;
  if (!with_bias && !activate && group.residual < 0) return;
  const Ref bias = with_bias ? lowering.weights(node, 1) : Ref{};
  const Ref residual = group.residual >= 0 ? lowering.value(group.residual_input) : Ref{};
  Elementwise kind = Elementwise::kRelu;
  float slope = 0;
  if (activate) {
    const auto& op = static_cast<const ActivationOp&>(*lowering.graph.node(group.activation).op);
    kind = static_cast<Elementwise>(op.activation);
    slope = op.slope;
  }
  lowering.emit(node.name + " bias, activation", {y, residual}, [=](const Frame& frame) {
    bias_activate(rows, columns, bias ? bias.in(frame) : nullptr,
                  residual ? residual.in(frame) : nullptr, activate, kind, slope, y.in(frame));
  });
}

namespace {

// Column sums of dz into the bias gradient. `part(frame, first, rows, accumulate, sums)` sums rows
// `first` … `first + rows` − 1; with several shards, each is summed apart, and the sums are joined
// along the tree.
template <typename Part>
void emit_column_sums(Lowering& lowering, const std::string& label, const Lowering::Target& db,
                      std::vector<Ref> touched, int64_t rows, int64_t columns, Part part) {
  const int shards = lowering.options.shards;
  if (shards == 1) {
    lowering.emit(label, touched, [=](const Frame& frame) {
      part(frame, 0, rows, db.adds || frame.accumulate, db.ref.in(frame));
    });
    return;
  }
  const Ref sums = lowering.scratch(static_cast<size_t>(shards * columns));
  touched.push_back(sums);
  lowering.emit(
      label, touched,
      [=, at = std::vector<const float*>(static_cast<size_t>(shards))](const Frame& frame) mutable {
        for (int shard = 0; shard < shards; ++shard) {
          float* const own = sums.in(frame) + shard * columns;
          part(frame, shard * rows / shards, rows / shards, false, own);
          at[static_cast<size_t>(shard)] = own;
        }
        tree_sum(at, static_cast<size_t>(columns), db.ref.in(frame));
      });
}

}  // namespace

Ref product_gradient(Lowering& lowering, const Group& group, int64_t rows, int64_t columns) {
  const Node& node = lowering.node(group);
  const bool has_bias =
      node.parameters.size() > 1 && lowering.backward_step(group).wants_parameters;
  const Ref dy = lowering.gradient(group.output);
  Ref dz = dy;
  if (group.activation >= 0) {
    const auto& op = static_cast<const ActivationOp&>(*lowering.graph.node(group.activation).op);
    const auto kind = static_cast<Elementwise>(op.activation);
    const Ref y = lowering.value(group.output);
    dz = lowering.gradient_to_change(group.output);
    const float slope = op.slope;
    if (has_bias) {
      emit_column_sums(
          lowering, node.name + " activation backward, bias gradient",
          lowering.parameter_gradient(node, 1), {y, dy, dz}, rows, columns,
          [=](const Frame& frame, int64_t first, int64_t count, bool accumulate, float* sums) {
            const int64_t at = first * columns;
            elementwise_backward_column_sums(kind, slope, count, columns, y.in(frame) + at,
                                             dy.in(frame) + at, dz.in(frame) + at, accumulate,
                                             sums);
          });
    } else {
      lowering.emit(node.name + " activation backward", {y, dy, dz}, [=](const Frame& frame) {
        elementwise_backward(kind, slope, rows * columns, y.in(frame), dy.in(frame), dz.in(frame));
      });
    }
  } else if (has_bias) {
    emit_column_sums(
        lowering, node.name + " bias gradient", lowering.parameter_gradient(node, 1), {dy}, rows,
        columns,
        [=](const Frame& frame, int64_t first, int64_t count, bool accumulate, float* sums) {
          column_sums(count, columns, dy.in(frame) + first * columns, accumulate, sums);
        });
  }
  if (group.residual >= 0 && lowering.has_gradient(group.residual_input)) {
    lowering.contribute_alias(group.residual_input, dz);
  }
  return dz;
}

namespace {

// Whether every parameter is of one node.
bool shares_no_parameters(const Graph& graph) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes()) {
    for (const ParameterSpec& parameter : node.parameters) {
      if (!used.insert(parameter.name).second) return false;
    }
  }
  return true;
}

// Whether the product for the weights of a dense layer is one stretch along the rows.
bool is_one_stretch(const Graph& graph, const Node& node, int64_t shard_rows) {
  const Shape& input = graph.value(node.inputs[0]).shape;
  return shard_rows * input.elements() / input.back() <= kGemmShardDepth;
}

}  // namespace

bool can_stack(const Graph& graph, int64_t shard_rows) {
  for (const Node& node : graph.nodes()) {
    const Family& family = family_of(*node.op);
    if (&family == &kCustomFamily || &family == &kBatchNormFamily) return false;
    if (node.parameters.empty()) continue;
    if (&family != &kDenseFamily || !is_one_stretch(graph, node, shard_rows)) return false;
  }
  return shares_no_parameters(graph);
}

bool adds_once(const Graph& graph, Precision precision, int64_t shard_rows) {
  if (precision != Precision::kF32) return false;
  for (const Node& node : graph.nodes()) {
    const Family& family = family_of(*node.op);
    if (&family == &kCustomFamily) return false;  // nobody knows how they add
    if (&family == &kDenseFamily && !is_one_stretch(graph, node, shard_rows)) return false;
  }
  return shares_no_parameters(graph);
}

bool raises_flags(const Graph& graph, Precision precision) {
  if (precision == Precision::kF32) return true;
  const auto convolves = [](const Node& node) { return &family_of(*node.op) == &kConvFamily; };
  return gemm_bf16() != nullptr &&
         std::none_of(graph.nodes().begin(), graph.nodes().end(), convolves);
}

}  // namespace starling
