#include "data/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/sha256.h"

namespace starling::data {

std::string digest(const Dataset& dataset) {
  const uint64_t count = std::min(dataset.size(), kDigestSamples);
  std::vector<float> features(static_cast<size_t>(dataset.feature_shape().elements())),
      labels(static_cast<size_t>(dataset.label_shape().elements()));
  Sha256 hash;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t id = count == 1 ? 0 : i * (dataset.size() - 1) / (count - 1);
    dataset.read({&id, 1}, features.data(), labels.data());
    hash.update(std::as_bytes(std::span(features)));
    hash.update(std::as_bytes(std::span(labels)));
  }
  constexpr size_t kLetters = 16;
  return fmt::format("{} of {}, {} ({})", dataset.size(), dataset.feature_shape().to_string(),
                     dataset.label_shape().to_string(), hash.hex().substr(0, kLetters));
}

}  // namespace starling::data
