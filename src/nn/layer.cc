#include "nn/layer.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {
namespace {

Layer make_layer(Layer::Impl::Build build) {
  return Layer(std::make_shared<const Layer::Impl>(std::move(build)));
}

Layer operator_layer(OperatorPtr op, Activation activation = linear) {
  return make_layer(
      [op = std::move(op), activation](Graph& graph, const std::vector<ValueId>& inputs,
                                       const std::string& name, const NodeTraining& training) {
        const ValueId x = graph.add(op, inputs, name, training);
        if (activation.kind == Activation::Kind::kNone) return x;
        const auto kind = static_cast<ActivationKind>(static_cast<int>(activation.kind) - 1);
        return graph.add(std::make_shared<ActivationOp>(kind, activation.slope), {x},
                         name.empty() ? "" : name + "." + activation_name(kind));
      });
}

// The input of a layer that takes one.
ValueId only(const std::vector<ValueId>& inputs) {
  if (inputs.size() == 1) return inputs[0];
  throw input_error(fmt::format("a layer made of others was called on {} values", inputs.size()),
                    "call it on one; only a layer of one operator takes several");
}

// Builds layers one after another; names of a named sequence start with its own.
ValueId build_all(Graph& graph, const std::vector<Layer>& layers, ValueId x,
                  const std::string& name, const NodeTraining& training) {
  const std::shared_ptr<Graph> unowned(&graph, [](Graph*) {});
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer layer = name.empty() ? layers[i] : layers[i].named(fmt::format("{}.{}", name, i + 1));
    x = Layer::Impl::inside(training, layer)(Symbol(unowned, x)).id();
  }
  return x;
}

Window window_of(Extent kernel, Extent stride, const Padding& padding) {
  return {.kernel_h = kernel.h,
          .kernel_w = kernel.w,
          .stride_h = stride.h,
          .stride_w = stride.w,
          .pad_top = padding.each.h,
          .pad_bottom = padding.each.h,
          .pad_left = padding.each.w,
          .pad_right = padding.each.w,
          .same = padding.same};
}

Layer pool(Pool2dOp::Mode mode, Extent window, const PoolOptions& options) {
  const Extent stride(options.stride.h == 0 ? window.h : options.stride.h,
                      options.stride.w == 0 ? window.w : options.stride.w);
  return operator_layer(
      std::make_shared<Pool2dOp>(mode, window_of(window, stride, options.padding)));
}

}  // namespace

const Shape& Symbol::shape() const { return graph_->value(id_).shape; }

Symbol input(const Shape& shape) {
  auto graph = std::make_shared<Graph>();
  const ValueId id = graph->add_input(shape);
  return {graph, id};
}

Symbol add(const Symbol& a, const Symbol& b) { return Layer(std::make_shared<AddOp>())({a, b}); }

Layer::Layer(std::shared_ptr<const Operator> op) : Layer(operator_layer(std::move(op))) {}

Symbol Layer::operator()(const Symbol& x) const {
  return {x.graph(), impl_->build(*x.graph(), {x.id()}, impl_->name, impl_->training)};
}

Symbol Layer::operator()(const std::vector<Symbol>& inputs) const {
  if (inputs.empty()) {
    throw input_error("a layer was called on no value", "call it on what comes from input()");
  }
  const std::shared_ptr<Graph>& graph = inputs[0].graph();
  std::vector<ValueId> ids;
  for (const Symbol& input : inputs) {
    if (input.graph() != graph) {
      throw input_error("values of different models can't be joined",
                        "build all of them from one input()");
    }
    ids.push_back(input.id());
  }
  return {graph, impl_->build(*graph, ids, impl_->name, impl_->training)};
}

Layer Layer::named(std::string name) const {
  auto impl = std::make_shared<Impl>(*impl_);
  impl->name = std::move(name);
  return Layer(std::shared_ptr<const Impl>(std::move(impl)));
}

Layer Layer::frozen() const {
  auto impl = std::make_shared<Impl>(*impl_);
  impl->training.trainable = false;
  return Layer(std::shared_ptr<const Impl>(std::move(impl)));
}

Layer Layer::with_weight_decay(double weight_decay) const {
  auto impl = std::make_shared<Impl>(*impl_);
  impl->training.weight_decay = weight_decay;
  return Layer(std::shared_ptr<const Impl>(std::move(impl)));
}

Layer Layer::Impl::inside(const NodeTraining& outer, const Layer& layer) {
  auto impl = std::make_shared<Impl>(*layer.impl_);
  NodeTraining& own = impl->training;
  own.trainable = own.trainable && outer.trainable;
  if (!own.weight_decay) own.weight_decay = outer.weight_decay;
  return Layer(std::shared_ptr<const Impl>(std::move(impl)));
}

Activation::operator Layer() const {
  if (kind == Kind::kNone) {
    return make_layer([](Graph&, const std::vector<ValueId>& inputs, const std::string&,
                         const NodeTraining&) { return only(inputs); });
  }
  return operator_layer(std::make_shared<ActivationOp>(
      static_cast<ActivationKind>(static_cast<int>(kind) - 1), slope));
}

Activation activation_from_name(std::string_view name) {
  if (name == "linear") return linear;
  if (name == "relu") return relu;
  if (name == "leaky_relu") return leaky_relu();
  if (name == "gelu") return gelu;
  if (name == "sigmoid") return sigmoid;
  if (name == "tanh") return tanh;
  throw input_error(fmt::format("there is no activation \"{}\"", name),
                    "use linear, relu, leaky_relu, gelu, sigmoid or tanh");
}

Layer dense(int64_t units, Activation activation, DenseOptions options) {
  return operator_layer(
      std::make_shared<DenseOp>(DenseOp::Options{
          .units = units, .bias = options.bias, .initializer = std::move(options.initializer)}),
      activation);
}

Layer conv2d(int64_t filters, Extent kernel, Activation activation, Conv2dOptions options) {
  return operator_layer(std::make_shared<Conv2dOp>(Conv2dOp::Options{
                            .filters = filters,
                            .window = window_of(kernel, options.stride, options.padding),
                            .groups = options.groups,
                            .bias = options.bias,
                            .initializer = std::move(options.initializer)}),
                        activation);
}

Layer max_pool2d(Extent window, PoolOptions options) {
  return pool(Pool2dOp::Mode::kMax, window, options);
}
Layer average_pool2d(Extent window, PoolOptions options) {
  return pool(Pool2dOp::Mode::kAverage, window, options);
}
Layer global_average_pool2d() {
  return operator_layer(std::make_shared<GlobalPool2dOp>(Pool2dOp::Mode::kAverage));
}
Layer global_max_pool2d() {
  return operator_layer(std::make_shared<GlobalPool2dOp>(Pool2dOp::Mode::kMax));
}
Layer flatten() { return operator_layer(std::make_shared<ReshapeOp>(std::nullopt)); }
Layer reshape(const Shape& shape) { return operator_layer(std::make_shared<ReshapeOp>(shape)); }
Layer softmax() { return operator_layer(std::make_shared<SoftmaxOp>()); }
Layer dropout(float rate) { return operator_layer(std::make_shared<DropoutOp>(rate)); }

Layer batch_norm(BatchNormOptions options) {
  return operator_layer(std::make_shared<BatchNormOp>(
      BatchNormOp::Options{.momentum = options.momentum, .epsilon = options.epsilon}));
}

Layer sequence(std::vector<Layer> layers) {
  return make_layer([layers = std::move(layers)](Graph& graph, const std::vector<ValueId>& inputs,
                                                 const std::string& name,
                                                 const NodeTraining& training) {
    return build_all(graph, layers, only(inputs), name, training);
  });
}

Layer residual(std::vector<Layer> layers, Activation activation, std::vector<Layer> shortcut) {
  return make_layer([layers = std::move(layers), activation, shortcut = std::move(shortcut)](
                        Graph& graph, const std::vector<ValueId>& inputs, const std::string& name,
                        const NodeTraining& training) {
    const ValueId x = only(inputs);
    const ValueId along =
        build_all(graph, shortcut, x, name.empty() ? name : name + ".shortcut", training);
    const ValueId through = build_all(graph, layers, x, name, training);
    const ValueId sum =
        graph.add(std::make_shared<AddOp>(), {along, through}, name.empty() ? name : name + ".add");
    if (activation.kind == Activation::Kind::kNone) return sum;
    return build_all(graph, {Layer(activation)}, sum, name.empty() ? name : name + ".out",
                     training);
  });
}

}  // namespace starling
