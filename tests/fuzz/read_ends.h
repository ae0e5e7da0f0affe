// For fuzz targets of data files: what a parser took must be readable.
#pragma once

#include <vector>

#include "starling/data.h"

namespace starling {

// Reads the first and the last sample; features and labels have the same shape.
inline void read_ends(const data::Dataset& dataset) {
  const size_t elements = static_cast<size_t>(dataset.feature_shape().elements());
  std::vector<float> features(elements), labels(elements);
  for (const uint64_t id : {uint64_t{0}, dataset.size() - 1})
    dataset.read({&id, 1}, features.data(), labels.data());
}

}  // namespace starling
