// Loss and Metric: what a prediction is worth against its label, sample by sample. Both are
// immutable, shared by all lanes, and work on f32 rows. Labels are floats too: a class index
// is one float per sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/shape.h"

namespace starling {

class Metric;
using MetricPtr = std::shared_ptr<const Metric>;

class Loss {
 public:
  virtual ~Loss() = default;
  virtual std::string kind() const = 0;

  // The shape of a label for predictions of this shape. Throws Error if none fits.
  virtual Shape label_shape(const Shape& prediction) const = 0;

  // Writes the loss of each of `rows` samples.
  virtual void forward(int64_t rows, const Shape& shape, const float* prediction,
                       const float* labels, float* losses) const = 0;

  // Writes the gradient of scale · Σ losses with respect to the prediction.
  virtual void backward(int64_t rows, const Shape& shape, const float* prediction,
                        const float* labels, float scale, float* grad_prediction) const = 0;

  // Throws Error when a label can't belong to the prediction's shape (a class out of range);
  // `first_sample` is the data set's number of the first row, for the message.
  virtual void check_labels(int64_t rows, const Shape& shape, const float* labels,
                            uint64_t first_sample) const;

  // What is measured beside it when the user names no metrics.
  virtual std::vector<MetricPtr> default_metrics(const Shape& prediction) const;
};
using LossPtr = std::shared_ptr<const Loss>;

LossPtr softmax_cross_entropy();  // logits {k}; label {1}: the class
LossPtr binary_cross_entropy();   // logits; labels of the same shape in [0, 1]; mean over elements
LossPtr mean_squared_error();     // labels of the same shape; mean over elements

class Metric {
 public:
  virtual ~Metric() = default;
  virtual std::string kind() const = 0;  // its column in the history: "accuracy"
  // Throws Error when it has nothing to say about such predictions and labels.
  virtual void check(const Shape& prediction, const Shape& label) const;
  // Writes the metric of each of `rows` samples; its value on a data set is their mean.
  virtual void evaluate(int64_t rows, const Shape& shape, const float* prediction,
                        const float* labels, float* values) const = 0;
};

MetricPtr accuracy();  // the arg-max (the lowest index of equals) is the class; one logit: its sign
MetricPtr top_k(int k);      // the class is among the k largest
MetricPtr absolute_error();  // mean |prediction − label|

}  // namespace starling
