// The golden numbers of tests/golden (made with PyTorch by tools/make_golden.py), read into
// operators, losses and plain float vectors. Values are in our layout: samples outermost, images
// channels-last. A file that is missing or malformed throws, which fails the test program that
// asked for it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "graph/operators.h"
#include "starling/loss.h"

namespace starling::golden {

using Floats = std::vector<float>;

// One operator with its inputs and what PyTorch makes of them. A case in inference (training is
// false) has no gradients: grad_output, grad_inputs and grad_parameters are empty.
struct OperatorCase {
  std::string name;
  OperatorPtr op;
  int64_t rows = 0;
  bool training = true;
  std::vector<Shape> input_shapes;
  std::vector<Floats> inputs;
  std::vector<Floats> parameters;  // in the order of op->parameters()
  Shape output_shape;
  Floats output;
  Floats grad_output;
  std::vector<Floats> grad_inputs;
  std::vector<Floats> grad_parameters;
  // Of batch normalisation. PyTorch's running variance takes in m2 / (n − 1), not m2 / n.
  Floats running_mean, running_variance;              // before the step
  Floats batch_mean, batch_m2;                        // training only
  Floats running_mean_after, running_variance_after;  // training only
  // Of dropout: what its mask is drawn for, as the first operator of a model.
  uint64_t seed = 0;
  uint32_t epoch = 0;
  std::vector<uint64_t> samples;
};

struct LossCase {
  std::string name;
  LossPtr loss;
  int64_t rows = 0;
  Shape shape;  // of a prediction
  Floats prediction, labels;
  Floats losses;  // per sample
  float scale = 1;
  Floats grad_prediction;  // of scale · Σ losses
};

struct MetricCase {
  std::string name;
  MetricPtr metric;
  int64_t rows = 0;
  Shape shape;
  Floats prediction, labels;
  Floats values;
};

// GoogleTest prints a parametrised case by its name.
inline void PrintTo(const OperatorCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const LossCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const MetricCase& c, std::ostream* out) { *out << c.name; }

// The content of tests/golden/<file>.
nlohmann::json read_json(const std::string& file);

std::vector<OperatorCase> load_operator_cases();
std::vector<LossCase> load_loss_cases();
std::vector<MetricCase> load_metric_cases();

}  // namespace starling::golden
