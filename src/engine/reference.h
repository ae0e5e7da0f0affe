// The plain, slow executor beside the fast one: it runs each operator's own forward and backward,
// one after another, every value in memory of its own. Plans are tested against it, and it finds
// the layer where a number stopped being finite.
#pragma once

#include <vector>

#include "engine/moments_layout.h"
#include "graph/graph.h"
#include "starling/loss.h"
#include "tensor/parameter_space.h"

namespace starling {

class ReferenceExecutor {
 public:
  ReferenceExecutor(const Graph& graph, LossPtr loss, const ParameterSpace& parameters,
                    const MomentsLayout& moments);

  struct Inputs {
    RowsContext context;
    const float* features = nullptr;
    const float* labels = nullptr;      // may be null without a loss
    const float* weights = nullptr;     // the flat space
    const float* statistics = nullptr;  // running ones
    double* shard_moments = nullptr;    // written in training
    float loss_scale = 1;
    const float* grad_output = nullptr;  // without a loss
    bool input_gradients = false;
  };

  void forward(const Inputs& inputs);
  // Adds the gradients of parameters to `gradients` (flat).
  void backward(const Inputs& inputs, float* gradients);

  const std::vector<float>& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const std::vector<float>& gradient(ValueId id) const {
    return gradients_[static_cast<size_t>(id)];
  }
  const std::vector<float>& output() const { return value(graph_.output()); }
  const std::vector<float>& losses() const { return losses_; }

  // The first layer whose output has a value that is not finite, "the loss", or empty.
  std::string first_non_finite() const;

 private:
  const Graph& graph_;
  LossPtr loss_;
  const ParameterSpace& parameters_;
  const MomentsLayout& moments_;
  std::vector<std::vector<float>> values_, gradients_, saved_;
  std::vector<float> losses_;
};

}  // namespace starling
