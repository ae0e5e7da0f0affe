// A few samples of a data set in a few letters: by which workers see that they have different data.
#pragma once

#include <string>

#include "starling/data.h"

namespace starling::data {

// Of the number of samples, their shapes, and up to kDigestSamples of them, the first, the last and
// some between. Reads these. Throws what reading throws.
std::string digest(const Dataset& dataset);

inline constexpr uint64_t kDigestSamples = 16;

}  // namespace starling::data
