// The table of layers: which types there are, and the options of each.
#include "job/job_fields.h"
#include "optim/initializers.h"

namespace starling {
namespace {

constexpr std::string_view kActivations[] = {"linear", "relu",    "leaky_relu",
                                             "gelu",   "sigmoid", "tanh"};
constexpr Range kSize{.min = 1, .max = 1 << 24};
constexpr Range kWindow{.min = 1, .max = 1 << 16};
constexpr Range kPads{.min = 0, .max = 1 << 16};

std::vector<LayerField> common(std::vector<LayerField> own) {
  std::vector<LayerField> fields = {
      {.key = "type",
       .description = "Which layer.",
       .slot = [](LayerJob& l) -> Slot { return &l.type; },
       .required = true},
      {"name", "Its name; unset: its type and a number.",
       [](LayerJob& l) -> Slot { return &l.name; }},
      {"frozen", "Training leaves its weights as they are.",
       [](LayerJob& l) -> Slot { return &l.frozen; }},
      {"weight_decay",
       "Its weight decay; unset: the optimizer's.",
       [](LayerJob& l) -> Slot { return &l.weight_decay; },
       {.max = 1e30}},
  };
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

LayerField activation_field(std::string_view description) {
  return {"activation",
          description,
          [](LayerJob& l) -> Slot { return &l.activation; },
          {},
          kActivations};
}
const LayerField kSlope = {"slope",
                           "Slope of leaky_relu for negative values.",
                           [](LayerJob& l) -> Slot { return &l.slope; },
                           {.min = -1e30, .max = 1e30}};
const LayerField kBias = {"bias", "Adds a bias.", [](LayerJob& l) -> Slot { return &l.bias; }};
const LayerField kPadding = {"padding", "Zeros around the image.",
                             [](LayerJob& l) -> Slot { return &l.padding; }, kPads};
const LayerField kStride = {"stride", "Steps of the window.",
                            [](LayerJob& l) -> Slot { return &l.stride; }, kWindow};

LayerField initializer_field() {
  return {"initializer",
          "How weights begin.",
          [](LayerJob& l) -> Slot { return &l.initializer; },
          {},
          initializer_names()};
}

LayerType dense_type() {
  return {"dense",
          "activation(x · Wᵀ + b) over the last axis.",
          common({{.key = "units",
                   .description = "Numbers that come out.",
                   .slot = [](LayerJob& l) -> Slot { return &l.units; },
                   .range = kSize,
                   .required = true},
                  activation_field("What is applied to the result."),
                  kSlope,
                  kBias,
                  initializer_field()}),
          {}};
}

LayerType conv2d_type() {
  LayerJob defaults;
  defaults.kernel = 3;
  defaults.stride = 1;
  return {"conv2d", "A convolution over height and width.",
          common({{.key = "filters",
                   .description = "Channels that come out.",
                   .slot = [](LayerJob& l) -> Slot { return &l.filters; },
                   .range = kSize,
                   .required = true},
                  {"kernel", "Size of the window.", [](LayerJob& l) -> Slot { return &l.kernel; },
                   kWindow},
                  activation_field("What is applied to the result."),
                  kSlope,
                  kStride,
                  kPadding,
                  {"groups", "Channels are cut into so many groups.",
                   [](LayerJob& l) -> Slot { return &l.groups; }, kSize},
                  kBias,
                  initializer_field()}),
          defaults};
}

LayerType pool_type(std::string_view name, std::string_view description) {
  LayerJob defaults;
  defaults.window = 2;
  return {name, description,
          common({{"window", "Size of the window.", [](LayerJob& l) -> Slot { return &l.window; },
                   kWindow},
                  kStride,
                  kPadding}),
          defaults};
}

LayerType batch_norm_type() {
  return {"batch_norm",
          "Normalises each channel over the shard, then scales and shifts it.",
          common({{"momentum",
                   "Weight of a new batch in the running statistics.",
                   [](LayerJob& l) -> Slot { return &l.momentum; },
                   {.max = 1}},
                  {"epsilon",
                   "Added to the variance.",
                   [](LayerJob& l) -> Slot { return &l.epsilon; },
                   {.max = 1, .without_min = true}}}),
          {}};
}

LayerType residual_type() {
  return {"residual",
          "activation(shortcut(x) + layers(x)).",
          common({{.key = "layers",
                   .description = "The layers on the way.",
                   .slot = [](LayerJob& l) -> Slot { return &l.layers; },
                   .required = true},
                  {"shortcut", "Layers of the shortcut; none: x itself is added.",
                   [](LayerJob& l) -> Slot { return &l.shortcut; }},
                  activation_field("What is applied to the sum."),
                  kSlope}),
          {}};
}

LayerType plain_type(std::string_view name, std::string_view description) {
  return {name, description, common({}), {}};
}

std::vector<LayerType> make_types() {
  std::vector<LayerType> types = {
      dense_type(),
      conv2d_type(),
      pool_type("max_pool2d", "The largest value in each window."),
      pool_type("average_pool2d", "The mean of each window."),
      plain_type("global_average_pool2d", "The mean of each channel."),
      plain_type("global_max_pool2d", "The largest value of each channel."),
      plain_type("flatten", "All values in one axis."),
      {"reshape",
       "The same values in another shape.",
       common({{.key = "shape",
                .description = "The new shape.",
                .slot = [](LayerJob& l) -> Slot { return &l.shape; },
                .range = kSize,
                .required = true}}),
       {}},
      batch_norm_type(),
      {"dropout",
       "Zeroes values at random in training.",
       common({{.key = "rate",
                .description = "Probability that a value is zeroed.",
                .slot = [](LayerJob& l) -> Slot { return &l.rate; },
                .range = {.min = 0, .max = 1, .without_max = true},
                .required = true}}),
       {}},
      plain_type("softmax", "Probabilities over the last axis."),
      plain_type("relu", "max(x, 0)."),
      {"leaky_relu", "x, or slope · x where x is negative.", common({kSlope}), {}},
      plain_type("gelu", "x · Φ(x)."),
      plain_type("sigmoid", "1 / (1 + e^−x)."),
      plain_type("tanh", "The hyperbolic tangent."),
      {"sequence",
       "Layers one after another, as one.",
       common({{.key = "layers",
                .description = "The layers.",
                .slot = [](LayerJob& l) -> Slot { return &l.layers; },
                .required = true}}),
       {}},
      residual_type(),
  };
  for (LayerType& type : types) type.defaults.type = type.name;
  return types;
}

}  // namespace

std::span<const LayerType> layer_types() {
  static const std::vector<LayerType> types = make_types();
  return types;
}

const LayerType* find_layer_type(std::string_view name) {
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace starling
