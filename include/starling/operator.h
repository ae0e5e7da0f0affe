// Operator: one kind of computation in a model, with its shapes, forward and backward.
//
// The methods here are the plain, slow meaning of the operator. The reference executor runs them
// as they are; the engine replaces the built-in ones by fast kernels and runs users' own ones
// through this interface. An Operator is immutable after construction and shared by all lanes:
// forward and backward are const and keep nothing between calls.
//
// Memory is f32, row-major, samples outermost: a value with shape {h, w, c} is rows × h × w × c
// floats. Images are channels-last.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/shape.h"

namespace starling {

// A trainable parameter that an operator wants.
struct ParameterSpec {
  std::string name;         // within the operator: "weight", "bias"
  Shape shape;              // row-major
  std::string initializer;  // by name: "zeros", "he_uniform", … (docs/job.md)
  int64_t fan_in = 1;
  int64_t fan_out = 1;
  bool decay = true;  // weight decay applies; by custom not to bias and normalisation
  std::optional<double> weight_decay = {};  // then: how much, if not as the optimizer says
};

// Running mean and variance per channel, as batch normalisation keeps them.
struct MomentsSpec {
  int64_t channels = 0;
  int64_t count_per_sample = 1;  // values per channel in one sample
  float momentum = 0.1f;         // weight of the new batch in the running statistics
};

// What the backward pass of an operator reads besides the gradient of its output.
struct BackwardNeeds {
  bool inputs = true;
  bool output = true;
};

// What is the same for all operators of one micro-batch.
struct RowsContext {
  int64_t rows = 0;  // samples in this micro-batch
  bool training = false;
  uint64_t seed = 0;
  uint32_t epoch = 0;
  std::span<const uint64_t> samples = {};  // the data set's number of each row; `rows` of them
};

struct ForwardArgs {
  const RowsContext& context;
  uint32_t operator_id;  // distinct in the model: keys random numbers
  std::span<const Shape> input_shapes;
  std::span<const float* const> inputs;
  std::span<const float* const> parameters;
  float* output;
  float* saved;  // saved_floats() floats that reach backward
  // For operators with moments(). In training the batch's own mean and sum of squared deviations
  // are written, and used; otherwise the running ones are read.
  const float* running_mean = nullptr;
  const float* running_variance = nullptr;
  double* batch_mean = nullptr;
  double* batch_m2 = nullptr;
};

struct BackwardArgs {
  const RowsContext& context;
  uint32_t operator_id;
  std::span<const Shape> input_shapes;
  std::span<const float* const> inputs;  // valid if backward_needs().inputs
  std::span<const float* const> parameters;
  const float* output;  // valid if backward_needs().output
  const float* saved;
  const float* grad_output;
  // Results are *added*; a null pointer means that the gradient is not wanted.
  std::span<float* const> grad_inputs;
  std::span<float* const> grad_parameters;
};

class Operator {
 public:
  virtual ~Operator() = default;

  // Its name in the job file and in messages: "conv2d".
  virtual std::string kind() const = 0;

  // The shape of the output for inputs of these shapes. Throws Error (input_error) that names
  // both shapes when they don't fit.
  virtual Shape infer(std::span<const Shape> inputs) const = 0;

  virtual std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const;
  virtual std::optional<MomentsSpec> moments(std::span<const Shape> inputs) const;

  // Floats to keep from forward to backward for `rows` samples.
  virtual int64_t saved_floats(std::span<const Shape> inputs, int64_t rows) const;
  virtual BackwardNeeds backward_needs() const { return {}; }

  // Floating-point operations of the forward pass for one sample.
  virtual double flops(std::span<const Shape> inputs) const;

  virtual void forward(const ForwardArgs& args) const = 0;
  virtual void backward(const BackwardArgs& args) const = 0;
};

}  // namespace starling
