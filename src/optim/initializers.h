// Initial weights by name. A weight is a function of (seed, parameter name, element), so that it
// doesn't depend on the order of parameters, on other layers, or on who draws it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/parameter_space.h"

namespace starling {

// zeros, ones; glorot, he and lecun, each _uniform and _normal (not truncated), scaled by the
// fans; normal (σ = 0.05), uniform (± 0.05); orthogonal (the first axis against all others).
std::span<const std::string_view> initializer_names();

// Writes the slice.size initial weights. Throws Error with all names for an unknown initializer,
// and for one that doesn't fit the shape.
void initialize(const Slice& slice, uint64_t seed, float* weights);

}  // namespace starling
