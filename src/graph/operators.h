// The built-in operators: their attributes, which the engine reads when it picks kernels, and
// their plain forward and backward, which are the reference that every kernel is tested against.
// Weights: dense {out, in}; conv2d {filters, in / groups, kernel_h, kernel_w}.
#pragma once

#include <memory>

#include "base/random.h"
#include "starling/operator.h"

namespace starling {

using OperatorPtr = std::shared_ptr<const Operator>;

// y = x · Wᵀ + b over the last axis of the input.
class DenseOp : public Operator {
 public:
  struct Options {
    int64_t units = 1;
    bool bias = true;
    std::string initializer = "glorot_uniform";
  };
  explicit DenseOp(Options options);
  const Options options;

  std::string kind() const override { return "dense"; }
  Shape infer(std::span<const Shape> inputs) const override;
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// A window that moves over the height and width of an image.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  // "valid" pads nothing; "same" pads so that the output has ⌈input / stride⌉ rows and columns,
  // the odd one at the bottom and right. It is resolved by `resolved`, when the input is known.
  bool same = false;

  // This window with `same` turned into padding for an input of height h and width w.
  Window resolved(int64_t h, int64_t w) const;
  // The output's height and width; requires a resolved window. May be below 1: the caller refuses.
  int64_t out_h(int64_t h) const;
  int64_t out_w(int64_t w) const;
};

class Conv2dOp : public Operator {
 public:
  struct Options {
    int64_t filters = 1;
    Window window;
    int64_t groups = 1;
    bool bias = true;
    std::string initializer = "glorot_uniform";
  };
  explicit Conv2dOp(Options options);
  const Options options;

  std::string kind() const override { return "conv2d"; }
  Shape infer(std::span<const Shape> inputs) const override;
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// Max or average over a window. The maximum goes to the first of equals, row by row; padding
// never wins. The average is over the elements inside the image.
class Pool2dOp : public Operator {
 public:
  enum class Mode { kMax, kAverage };
  Pool2dOp(Mode mode, Window window);
  const Mode mode;
  const Window window;

  std::string kind() const override { return mode == Mode::kMax ? "max_pool2d" : "average_pool2d"; }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override {
    return {.inputs = mode == Mode::kMax, .output = false};
  }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// The mean ({h, w, c} → {c}) or maximum of each channel over the whole image.
class GlobalPool2dOp : public Operator {
 public:
  explicit GlobalPool2dOp(Pool2dOp::Mode mode);
  const Pool2dOp::Mode mode;

  std::string kind() const override {
    return mode == Pool2dOp::Mode::kMax ? "global_max_pool2d" : "global_average_pool2d";
  }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override {
    return {.inputs = mode == Pool2dOp::Mode::kMax, .output = false};
  }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// The same floats under another shape; flatten is a reshape to one axis.
class ReshapeOp : public Operator {
 public:
  // Without a target, the input is flattened.
  explicit ReshapeOp(std::optional<Shape> target);
  const std::optional<Shape> target;

  std::string kind() const override { return target ? "reshape" : "flatten"; }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = false, .output = false}; }
  double flops(std::span<const Shape>) const override { return 0; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// An element-wise activation. Gelu is the exact one, x · Φ(x).
enum class ActivationKind { kRelu, kLeakyRelu, kGelu, kSigmoid, kTanh };
const char* activation_name(ActivationKind kind);

class ActivationOp : public Operator {
 public:
  explicit ActivationOp(ActivationKind activation, float slope = 0.01f);
  const ActivationKind activation;
  const float slope;  // of leaky relu, for x < 0

  std::string kind() const override { return activation_name(activation); }
  Shape infer(std::span<const Shape> inputs) const override;
  // Gelu needs its input; the others are told by their output.
  BackwardNeeds backward_needs() const override;
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// Softmax over the last axis.
class SoftmaxOp : public Operator {
 public:
  std::string kind() const override { return "softmax"; }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = false, .output = true}; }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// The random numbers of one dropout operator for one sample: distinct for every operator, epoch
// and sample, and the same whoever draws them.
RandomStream dropout_stream(uint64_t seed, uint32_t epoch, uint32_t operator_id, uint64_t sample);

// Zeroes each element with probability `rate` and scales the rest by 1 / (1 − rate), in training;
// in inference it is the identity. Element e of a sample is kept when
// dropout_stream(…).uniform(e) ≥ rate.
class DropoutOp : public Operator {
 public:
  explicit DropoutOp(float rate);
  const float rate;

  std::string kind() const override { return "dropout"; }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = false, .output = false}; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// Normalises each channel (the last axis) over the rows and pixels of the micro-batch, which is
// the shard in training; parameters "scale" and "shift", no weight decay.
// saved: mean and 1 / √(variance + epsilon), 2 · channels floats.
class BatchNormOp : public Operator {
 public:
  struct Options {
    float momentum = 0.1f;
    float epsilon = 1e-5f;
  };
  explicit BatchNormOp(Options options);
  const Options options;

  std::string kind() const override { return "batch_norm"; }
  Shape infer(std::span<const Shape> inputs) const override;
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override;
  std::optional<MomentsSpec> moments(std::span<const Shape> inputs) const override;
  int64_t saved_floats(std::span<const Shape> inputs, int64_t rows) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }
  double flops(std::span<const Shape> inputs) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

// The sum of two values of one shape: the join of a residual block.
class AddOp : public Operator {
 public:
  std::string kind() const override { return "add"; }
  Shape infer(std::span<const Shape> inputs) const override;
  BackwardNeeds backward_needs() const override { return {.inputs = false, .output = false}; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
};

}  // namespace starling
