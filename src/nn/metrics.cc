#include <fmt/format.h>

#include <cmath>

#include "starling/error.h"
#include "starling/loss.h"

namespace starling {
namespace {

// True when the label's logit is among the `best` largest; of equals, lower indices come first.
// A label that is no class, or whose logit is NaN, never is.
bool among_largest(const float* x, int64_t k, float label, int64_t best) {
  if (!(label >= 0 && label < static_cast<float>(k)) || label != std::floor(label)) return false;
  const int64_t c = static_cast<int64_t>(label);
  if (std::isnan(x[c])) return false;
  int64_t ahead = 0;
  for (int64_t i = 0; i < k; ++i) ahead += x[i] > x[c] || (x[i] == x[c] && i < c);
  return ahead < best;
}

// For metrics of classes: their label is the number of one.
void check_is_class(const Metric& metric, const Shape& label) {
  if (label.elements() == 1) return;
  throw input_error(fmt::format("the metric {} is of classes, but a label is {} numbers",
                                metric.kind(), label.elements()),
                    "measure absolute_error, or use a loss of classes: softmax_cross_entropy");
}

class Accuracy : public Metric {
 public:
  std::string kind() const override { return "accuracy"; }
  void check(const Shape&, const Shape& label) const override { check_is_class(*this, label); }

  void evaluate(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float* values) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = prediction + row * k;
      const bool right = k == 1 ? !std::isnan(x[0]) && (x[0] > 0) == (labels[row] > 0.5f)
                                : among_largest(x, k, labels[row], 1);
      values[row] = right ? 1.0f : 0.0f;
    }
  }
};

class TopK : public Metric {
 public:
  explicit TopK(int best) : best_(best) {
    if (best < 1) {
      throw input_error(fmt::format("top_k: k is {}", best), "k is at least 1, for instance 5");
    }
  }
  std::string kind() const override { return fmt::format("top_{}", best_); }
  void check(const Shape&, const Shape& label) const override { check_is_class(*this, label); }

  void evaluate(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float* values) const override {
    const int64_t k = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      values[row] = among_largest(prediction + row * k, k, labels[row], best_) ? 1.0f : 0.0f;
    }
  }

 private:
  int best_;
};

class AbsoluteError : public Metric {
 public:
  std::string kind() const override { return "absolute_error"; }
  void check(const Shape& prediction, const Shape& label) const override {
    if (prediction.elements() == label.elements()) return;
    throw input_error(
        fmt::format("the metric absolute_error compares {} numbers with a label of {}",
                    prediction.elements(), label.elements()),
        "measure accuracy, or use a loss of numbers: mean_squared_error");
  }

  void evaluate(int64_t rows, const Shape& shape, const float* prediction, const float* labels,
                float* values) const override {
    const int64_t n = shape.elements();
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i) {
        sum += std::abs(double{prediction[i]} - labels[i]);
      }
      values[row] = static_cast<float>(sum / static_cast<double>(n));
    }
  }
};

}  // namespace

void Metric::check(const Shape&, const Shape&) const {}

MetricPtr accuracy() { return std::make_shared<Accuracy>(); }
MetricPtr top_k(int k) { return std::make_shared<TopK>(k); }
MetricPtr absolute_error() { return std::make_shared<AbsoluteError>(); }

}  // namespace starling
