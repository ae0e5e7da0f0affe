// Layers: what models are made of. A Layer is a description, cheap to copy; calling it on a Symbol
// adds it to the model that is being built, so one Layer used twice gives two sets of weights.
//
//   Symbol x = input({28, 28, 1});
//   Symbol h = conv2d(16, 3, relu, {.padding = same})(x);
//   h = add(h, conv2d(16, 3, relu, {.padding = same})(h));
//   Model model(x, dense(10)(flatten()(h)));
//
// Shapes are those of one sample; images are {height, width, channels}. A shape that does not fit
// throws Error that names the layer and both shapes.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/operator.h"
#include "starling/shape.h"

namespace starling {

class Graph;

// A value in a model that is being built.
class Symbol {
 public:
  Symbol(std::shared_ptr<Graph> graph, int id) : graph_(std::move(graph)), id_(id) {}
  const Shape& shape() const;
  const std::shared_ptr<Graph>& graph() const { return graph_; }
  int id() const { return id_; }

 private:
  std::shared_ptr<Graph> graph_;
  int id_;
};

// The start of a model: one sample has this shape.
Symbol input(const Shape& shape);
// The sum of two values of one shape.
Symbol add(const Symbol& a, const Symbol& b);

class Layer {
 public:
  // A layer of one operator: a user's own, for instance, with one input or several.
  Layer(std::shared_ptr<const Operator> op);  // NOLINT: meant to convert
  template <std::derived_from<Operator> Op>
  Layer(std::shared_ptr<Op> op)  // NOLINT: meant to convert
      : Layer(std::shared_ptr<const Operator>(std::move(op))) {}

  Symbol operator()(const Symbol& x) const;
  // On several values, for an operator that takes them: multiply()({a, b}).
  Symbol operator()(const std::vector<Symbol>& inputs) const;

  // The same layer under a name of its own; its weights are "name.weight" and so on. By default a
  // layer is named by its kind and a number: "conv2d_1".
  Layer named(std::string name) const;
  // The same layer with weights that training leaves as they are.
  Layer frozen() const;
  // The same layer with this weight decay, instead of the optimizer's, for its parameters that
  // decay at all; 0: none. Layers inside it may have their own.
  Layer with_weight_decay(double weight_decay) const;

  class Impl;
  explicit Layer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

// An element-wise activation: an argument of dense and conv2d, or a layer of its own.
struct Activation {
  enum class Kind { kNone, kRelu, kLeakyRelu, kGelu, kSigmoid, kTanh };
  Kind kind = Kind::kNone;
  float slope = 0.01f;  // of leaky relu, for negative values

  operator Layer() const;  // NOLINT: meant to convert
};
inline constexpr Activation linear{};
inline constexpr Activation relu{Activation::Kind::kRelu};
inline constexpr Activation gelu{Activation::Kind::kGelu};
inline constexpr Activation sigmoid{Activation::Kind::kSigmoid};
inline constexpr Activation tanh{Activation::Kind::kTanh};
constexpr Activation leaky_relu(float slope = 0.01f) {
  return {Activation::Kind::kLeakyRelu, slope};
}
// "relu", "leaky_relu", "gelu", "sigmoid", "tanh" or "linear"; throws Error for another name.
Activation activation_from_name(std::string_view name);

struct DenseOptions {
  bool bias = true;
  std::string initializer = "glorot_uniform";
};
// y = activation(x · Wᵀ + b) over the last axis; weight {units, in}.
Layer dense(int64_t units, Activation activation = linear, DenseOptions options = {});

// Height and width; one number means both.
struct Extent {
  int64_t h = 1, w = 1;
  constexpr Extent(int64_t both) : h(both), w(both) {}  // NOLINT: meant to convert
  constexpr Extent(int64_t height, int64_t width) : h(height), w(width) {}
};

// What surrounds an image: nothing, as much as keeps ⌈size / stride⌉, or so many on each side.
struct Padding {
  bool same = false;
  Extent each = 0;
};
inline constexpr Padding valid{};
inline constexpr Padding same{true, 0};
constexpr Padding pad(Extent each) { return {false, each}; }

struct Conv2dOptions {
  Extent stride = 1;
  Padding padding = valid;
  int64_t groups = 1;
  bool bias = true;
  std::string initializer = "glorot_uniform";
};
// weight {filters, in / groups, kernel height, kernel width}.
Layer conv2d(int64_t filters, Extent kernel, Activation activation = linear,
             Conv2dOptions options = {});

struct PoolOptions {
  Extent stride = 0;  // 0: the size of the window
  Padding padding = valid;
};
Layer max_pool2d(Extent window, PoolOptions options = {});
Layer average_pool2d(Extent window, PoolOptions options = {});
Layer global_average_pool2d();
Layer global_max_pool2d();

Layer flatten();
Layer reshape(const Shape& shape);
Layer softmax();
// Zeroes values with probability `rate` in training.
Layer dropout(float rate);

struct BatchNormOptions {
  float momentum = 0.1f;  // weight of a new batch in the running statistics
  float epsilon = 1e-5f;
};
Layer batch_norm(BatchNormOptions options = {});

// Layers one after another, as one.
Layer sequence(std::vector<Layer> layers);
// activation(shortcut(x) + layers(x)); without a shortcut, x itself is added.
Layer residual(std::vector<Layer> layers, Activation activation = linear,
               std::vector<Layer> shortcut = {});

}  // namespace starling
