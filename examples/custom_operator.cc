// An operator and a loss of your own, trained in a model beside Starling's. docs/extending.md tells
// what each method promises; this file is its example.
#include <starling/starling.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace starling;

// Swish, y = x · σ(β·x), with a β for each channel that is learned like any weight.
//
// An operator is immutable and used by all lanes at once: what it computes lies in the memory that
// it is given, never in members.
class SwishOp : public Operator {
 public:
  // The name of its layers ("swish_1") and of the operator in messages.
  std::string kind() const override { return "swish"; }

  // The output's shape, for one sample. Throw input_error when the inputs don't fit: the layer's
  // name is put before the message.
  Shape infer(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1 || inputs[0].rank() == 0) {
      throw input_error("swish takes one input with channels in its last axis",
                        "put it behind a dense or conv2d layer");
    }
    return inputs[0];
  }

  // One parameter, "swish_1.beta". It starts at 1, and weight decay leaves it alone.
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{.name = "beta", .shape = {inputs[0].back()}, .initializer = "ones", .decay = false}};
  }

  // The sigmoid of every value is kept for the backward pass, which then needs no exp.
  int64_t saved_floats(std::span<const Shape> inputs, int64_t rows) const override {
    return rows * inputs[0].elements();
  }

  // What backward reads besides: x, but not y, whose memory may then be used again.
  BackwardNeeds backward_needs() const override { return {.inputs = true, .output = false}; }

  void forward(const ForwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    const int64_t n = args.context.rows * args.input_shapes[0].elements();
    const float *x = args.inputs[0], *beta = args.parameters[0];
    for (int64_t i = 0; i < n; ++i) {
      args.saved[i] = 1 / (1 + std::exp(-beta[i % channels] * x[i]));
      args.output[i] = x[i] * args.saved[i];
    }
  }

  // Gradients are *added* to what is there: other readers of x, and earlier micro-batches, have
  // added theirs. A null pointer means that nobody wants that gradient (a frozen layer, the data).
  void backward(const BackwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    const int64_t n = args.context.rows * args.input_shapes[0].elements();
    const float *x = args.inputs[0], *beta = args.parameters[0], *dy = args.grad_output;
    float *dx = args.grad_inputs[0], *dbeta = args.grad_parameters[0];
    for (int64_t i = 0; i < n; ++i) {
      const float s = args.saved[i];
      const float slope = s * (1 - s);  // of σ at β·x
      if (dx != nullptr) dx[i] += dy[i] * (s + beta[i % channels] * x[i] * slope);
      if (dbeta != nullptr) dbeta[i % channels] += dy[i] * x[i] * x[i] * slope;
    }
  }
};

// An operator becomes a layer by conversion.
Layer swish() { return std::make_shared<SwishOp>(); }

// Cross-entropy against labels that are right with probability 1 − ε only: it keeps a model from
// being too sure of itself.
class SmoothedCrossEntropy : public Loss {
 public:
  explicit SmoothedCrossEntropy(double epsilon) : epsilon_(epsilon) {}
  std::string kind() const override { return "smoothed_cross_entropy"; }

  // One class index per sample, for predictions {k}.
  Shape label_shape(const Shape& prediction) const override {
    if (prediction.rank() != 1 || prediction[0] < 2) {
      throw input_error("smoothed_cross_entropy takes one logit per class, but the output is " +
                            prediction.to_string(),
                        "end the model with dense(classes)");
    }
    return {1};
  }

  // The loss of each sample; their mean over the batch is what training makes small.
  void forward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
               float* losses) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = prediction + row * k;
      const double log_sum = log_sum_exp(x, k);
      double loss = 0;
      for (int64_t i = 0; i < k; ++i) loss += target(i, labels[row], k) * (log_sum - x[i]);
      losses[row] = static_cast<float>(loss);
    }
  }

  // Unlike an operator's, these gradients are written, not added; `scale` is 1 / batch.
  void backward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float scale, float* grad_prediction) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = prediction + row * k;
      const double log_sum = log_sum_exp(x, k);
      for (int64_t i = 0; i < k; ++i) {
        const double probability = std::exp(x[i] - log_sum);
        grad_prediction[row * k + i] =
            static_cast<float>(scale * (probability - target(i, labels[row], k)));
      }
    }
  }

  // Called on every label before it is used: forward can then rely on it.
  void check_labels(int64_t rows, const Shape& shape, const float* labels,
                    uint64_t first_sample) const override {
    for (int64_t row = 0; row < rows; ++row) {
      if (labels[row] >= 0 && labels[row] < static_cast<float>(shape[0]) &&
          labels[row] == std::floor(labels[row])) {
        continue;
      }
      throw input_error("the label of sample " +
                            std::to_string(first_sample + static_cast<uint64_t>(row)) +
                            " is not a class",
                        "labels are 0 … " + std::to_string(shape[0] - 1));
    }
  }

 private:
  // The share of class i in what the model should say.
  double target(int64_t i, float label, int64_t k) const {
    return epsilon_ / static_cast<double>(k) +
           (i == static_cast<int64_t>(label) ? 1 - epsilon_ : 0);
  }
  static double log_sum_exp(const float* x, int64_t k) {
    const double largest = *std::max_element(x, x + k);
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += std::exp(x[i] - largest);
    return largest + std::log(sum);
  }

  double epsilon_;
};

}  // namespace

int main() try {
  const auto data = data::synthetic({.samples = 2000, .features = {8, 8, 1}, .classes = 10});
  const auto [train, test] = data.cached().split(0.2, 1);
  const Sequential model({8, 8, 1},
                         {conv2d(16, 3), swish(), flatten(), dense(32), swish(), dense(10)});
  std::printf("%s\n", model.summary().c_str());

  // The default metrics belong to Starling's own losses: with another, say what to measure.
  Trainer trainer(model, {.optimizer = adam(3e-3),
                          .loss = std::make_shared<SmoothedCrossEntropy>(0.1),
                          .metrics = {accuracy()}});
  trainer.fit(
      train,
      {.epochs = 5, .batch = 32, .validation = test, .on_epoch = [](const EpochRecord& epoch) {
         std::printf("epoch %u: loss %.4f, validation accuracy %.1f%%\n", epoch.epoch,
                     epoch.value("train_loss"), 100 * epoch.value("val_accuracy"));
       }});
  const auto betas = trainer.weights("swish_2.beta");
  const auto [least, most] = std::minmax_element(betas.begin(), betas.end());
  std::printf("β of swish_2, 1 at the start: now %.3f … %.3f\n", *least, *most);
} catch (const starling::Error& error) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
  return error.exit_code();
}
