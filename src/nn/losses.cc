#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "starling/error.h"
#include "starling/loss.h"

namespace starling {

void Loss::check_labels(int64_t rows, const Shape& shape, const float* labels,
                        uint64_t first_sample) const {
  const int64_t elements = label_shape(shape).elements();
  for (int64_t i = 0; i < rows * elements; ++i) {
    if (std::isfinite(labels[i])) continue;
    throw input_error(fmt::format("label {} of sample {} is not a finite number", labels[i],
                                  first_sample + static_cast<uint64_t>(i / elements)),
                      "remove or repair this sample");
  }
}

std::vector<MetricPtr> Loss::default_metrics(const Shape&) const { return {}; }

namespace {

// log Σ exp(x), safe for logits of any size.
double log_sum_exp(const float* x, int64_t k) {
  const double largest = *std::max_element(x, x + k);
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

class SoftmaxCrossEntropy : public Loss {
 public:
  std::string kind() const override { return "softmax_cross_entropy"; }

  Shape label_shape(const Shape& prediction) const override {
    if (prediction.rank() != 1 || prediction[0] < 2) {
      throw input_error(
          fmt::format("softmax_cross_entropy takes one logit per class, at least 2 in one axis; "
                      "the model's output is {}",
                      prediction.to_string()),
          "end the model with flatten and dense(classes); for one logit take "
          "binary_cross_entropy");
    }
    return Shape{1};
  }

  void forward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
               float* losses) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = prediction + row * k;
      losses[row] = static_cast<float>(log_sum_exp(x, k) - x[static_cast<int64_t>(labels[row])]);
    }
  }

  void backward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float scale, float* grad_prediction) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = prediction + row * k;
      float* dx = grad_prediction + row * k;
      const double normaliser = log_sum_exp(x, k);
      const int64_t label = static_cast<int64_t>(labels[row]);
      for (int64_t i = 0; i < k; ++i) {
        const double probability = std::exp(x[i] - normaliser);
        dx[i] = static_cast<float>(scale * (probability - (i == label ? 1 : 0)));
      }
    }
  }

  void check_labels(int64_t rows, const Shape& shape, const float* labels,
                    uint64_t first_sample) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t sample = first_sample + static_cast<uint64_t>(row);
      const double label = labels[row];
      if (!(label == std::floor(label))) {  // NaN and infinity are caught by one or the other
        throw input_error(fmt::format("label {} of sample {} is not a class: it is not a whole "
                                      "number",
                                      label, sample),
                          "softmax_cross_entropy takes labels 0, 1, 2, …; for numbers take "
                          "mean_squared_error");
      }
      if (!(label >= 0 && label < static_cast<double>(k))) {
        throw input_error(fmt::format("label {} of sample {} is out of range: the model has {} "
                                      "classes (0 … {})",
                                      label, sample, k, k - 1),
                          "give the last dense layer as many units as there are classes, and count "
                          "classes from 0");
      }
    }
  }

  std::vector<MetricPtr> default_metrics(const Shape&) const override { return {accuracy()}; }
};

// What the losses that compare element by element share: their label's shape and the mean.
class ElementwiseLoss : public Loss {
 public:
  Shape label_shape(const Shape& prediction) const override { return prediction; }

  void forward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
               float* losses) const override {
    const int64_t n = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i) sum += loss(prediction[i], labels[i]);
      losses[row] = static_cast<float>(sum / static_cast<double>(n));
    }
  }

  void backward(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float scale, float* grad_prediction) const override {
    const int64_t n = shape.elements();
    const double factor = scale / static_cast<double>(n);
    for (int64_t i = 0; i < rows * n; ++i) {
      grad_prediction[i] = static_cast<float>(factor * slope(prediction[i], labels[i]));
    }
  }

 private:
  // The loss of one element, and its derivative with respect to the prediction x.
  virtual double loss(double x, double label) const = 0;
  virtual double slope(double x, double label) const = 0;
};

class BinaryCrossEntropy : public ElementwiseLoss {
 public:
  std::string kind() const override { return "binary_cross_entropy"; }

  void check_labels(int64_t rows, const Shape& shape, const float* labels,
                    uint64_t first_sample) const override {
    const int64_t n = shape.elements();
    for (int64_t i = 0; i < rows * n; ++i) {
      if (labels[i] >= 0 && labels[i] <= 1) continue;
      throw input_error(fmt::format("label {} of sample {} is out of range: binary_cross_entropy "
                                    "takes probabilities (0 … 1)",
                                    labels[i], first_sample + static_cast<uint64_t>(i / n)),
                        "scale the labels to 0 … 1; for classes 0, 1, 2, … take "
                        "softmax_cross_entropy");
    }
  }

  // One logit tells two classes apart; several are labels of their own.
  std::vector<MetricPtr> default_metrics(const Shape& prediction) const override {
    if (prediction.elements() != 1) return {};
    return {accuracy()};
  }

 private:
  // −label · log σ(x) − (1 − label) · log σ(−x), in the form that never overflows.
  double loss(double x, double label) const override {
    return std::max(x, 0.0) - x * label + std::log1p(std::exp(-std::abs(x)));
  }
  double slope(double x, double label) const override { return 1 / (1 + std::exp(-x)) - label; }
};

class MeanSquaredError : public ElementwiseLoss {
 public:
  std::string kind() const override { return "mean_squared_error"; }

 private:
  double loss(double x, double label) const override { return (x - label) * (x - label); }
  double slope(double x, double label) const override { return 2 * (x - label); }
};

}  // namespace

LossPtr softmax_cross_entropy() { return std::make_shared<SoftmaxCrossEntropy>(); }
LossPtr binary_cross_entropy() { return std::make_shared<BinaryCrossEntropy>(); }
LossPtr mean_squared_error() { return std::make_shared<MeanSquaredError>(); }

}  // namespace starling
