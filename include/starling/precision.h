// The precision of training: what the operands of products and convolutions are rounded to.
// Sums, everything element-wise, weights, gradients and optimizer state are f32 in both.
#pragma once

#include <string_view>

namespace starling {

enum class Precision { kF32, kBf16 };

// "f32" or "bf16"; throws Error for another name.
Precision precision_from_name(std::string_view name);
const char* precision_name(Precision precision);

}  // namespace starling
