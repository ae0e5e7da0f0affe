#include "starling/operator.h"

namespace starling {

std::vector<ParameterSpec> Operator::parameters(std::span<const Shape>) const { return {}; }

std::optional<MomentsSpec> Operator::moments(std::span<const Shape>) const { return std::nullopt; }

int64_t Operator::saved_floats(std::span<const Shape>, int64_t) const { return 0; }

// One operation per element of the output: what most element-wise operators cost.
double Operator::flops(std::span<const Shape> inputs) const {
  return static_cast<double>(infer(inputs).elements());
}

}  // namespace starling
