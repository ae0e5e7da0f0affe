// The hash by which runs are compared bit for bit: `weights_sha256` of the report.
#pragma once

#include <span>
#include <string>

#include "tensor/parameter_space.h"

namespace starling {

// SHA-256, in hexadecimal, of the weights as little-endian row-major f32, parameters in name
// order, without padding. `weights` is the whole space: total_floats() floats.
std::string weights_sha256(const ParameterSpace& space, std::span<const float> weights);

}  // namespace starling
