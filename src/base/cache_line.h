// How much memory goes from core to core at once.
#pragma once

#include <cstddef>

namespace starling {

inline constexpr size_t kLineFloats = 64 / sizeof(float);

}  // namespace starling
