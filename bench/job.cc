#include "job.h"

#include <numeric>

#include "graph/graph.h"
#include "starling/error.h"

namespace bench {
namespace {

using namespace starling;

Problem problem_of(const std::string& model) {
  Problem problem;
  if (!find_problem(model, problem)) {
    throw input_error("unknown model: " + model, "use cnn, mlp, large, small or residual");
  }
  return problem;
}

Layer plain_conv(int64_t filters, int64_t kernel, int64_t stride) {
  return conv2d(filters, kernel, linear,
                {.stride = stride, .padding = pad(kernel / 2), .bias = false});
}

Layer block(int64_t width, int64_t stride) {
  std::vector<Layer> shortcut;
  if (stride != 1) shortcut.push_back(plain_conv(width, 1, stride));
  return residual(
      {plain_conv(width, 3, stride), batch_norm(), relu, plain_conv(width, 3, 1), batch_norm()},
      relu, shortcut);
}

Model make_model(const std::string& name) {
  if (name == "mlp") return Sequential({784}, {dense(256, relu), dense(10)});
  if (name == "large") return Sequential({1024}, {dense(4096, relu), dense(4096, relu), dense(10)});
  if (name == "small") return Sequential({16}, {dense(32, relu), dense(32, relu), dense(4)});
  if (name == "cnn")
    return Sequential({28, 28, 1}, {conv2d(32, 3, relu), max_pool2d(2), flatten(), dense(10)});
  return Sequential({28, 28, 1}, {plain_conv(16, 3, 1), batch_norm(), relu, block(16, 1),
                                  block(32, 2), block(64, 2), global_average_pool2d(), dense(10)});
}

// Before the executor packs them. Workers that share memory have one state, which the chief sets.
const ParameterSpace& set_weights(const Model& model, World& world, TrainState& state) {
  size_t products = 0;
  for (const Node& node : model.graph().nodes()) {
    for (const ParameterSpec& parameter : node.parameters) {
      if (parameter.shape.rank() < 2) continue;
      const Slice& slice = *state.space.find(parameter.name);
      if (world.shares_memory() && !world.is_chief()) continue;
      fill_weights(products++, slice.size / static_cast<size_t>(slice.shape[0]),
                   state.weights.data() + slice.offset, slice.size);
    }
  }
  world.barrier("weights");
  return state.space;
}

}  // namespace

Job::Job(const JobOptions& options, World& world)
    : options_(options),
      problem_(problem_of(options.model)),
      model_(make_model(options.model)),
      optimizer_(problem_.adam ? adam(options.rate) : momentum(options.rate)),
      state_(model_.graph(), optimizer_, 1, world, {.lanes = options.lanes}),
      executor_(model_.graph(), softmax_cross_entropy(), {}, set_weights(model_, world, state_),
                state_.moments, state_.weights.data(),
                {.lanes = options.lanes,
                 .shards = options.shards,
                 .micro_batch =
                     options.micro_batch > 0 ? options.micro_batch : default_micro_batch(model_),
                 .precision = options.precision}),
      strategy_(make_strategy({}, world, executor_, state_.space,
                              {StepSize::of_batch(static_cast<int64_t>(options.batch))})),
      step_(executor_, *strategy_, state_, optimizer_, NonFinite::kStop),
      samples_(options.batch),
      features_(make_features(options.batch, problem_)),
      labels_(make_labels(options.batch, problem_)) {
  std::iota(samples_.begin(), samples_.end(), uint64_t{0});
  executor_.prepare(static_cast<int64_t>(options.batch));
}

starling::BatchRows Job::rows() const {
  return {.samples = samples_, .features = features_.data(), .labels = labels_.data()};
}

size_t Job::state_bytes() const {
  return state_.weights.size() * sizeof(float) + state_.optimizer.bytes();
}

double Job::flops_per_step() const {
  const Graph& graph = model_.graph();
  double flops = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind() != "dense" && node.op->kind() != "conv2d") continue;
    // Forward, gradient of the weights and, but for the first layer, gradient of the input.
    const bool first = node.inputs[0] == graph.inputs()[0];
    flops += (first ? 2 : 3) * node.op->flops(graph.input_shapes(node));
  }
  return flops * static_cast<double>(options_.batch);
}

}  // namespace bench
