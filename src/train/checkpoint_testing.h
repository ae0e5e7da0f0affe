// Small snapshots for tests of checkpoints.
#pragma once

#include <bit>
#include <string>

#include "train/checkpoint.h"

namespace starling {

// A snapshot whose every part depends on its step, so that a mixture of two would be noticed.
inline Snapshot snapshot_of(uint64_t step) {
  const auto value = static_cast<float>(step);
  Snapshot snapshot;
  snapshot.weights = {{"dense/bias", Shape{2}, {value, -value}},
                      {"dense/weight", Shape{2, 2}, {value, 0.1f, value + 1, -0.0f}}};
  snapshot.optimizer = {{"dense/bias/m", Shape{2}, {value, 1}}};
  snapshot.statistics = {{"norm/mean", Shape{1}, {value}}};
  snapshot.manifest = {
      {"step", step}, {"seed", UINT64_MAX}, {"loss", 0.1 + 1.0 / 3}, {"job", "name = \"a\"\n"}};
  return snapshot;
}

inline bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].shape != b[i].shape) return false;
    if (a[i].values.size() != b[i].values.size()) return false;
    for (size_t j = 0; j < a[i].values.size(); ++j) {
      if (std::bit_cast<uint32_t>(a[i].values[j]) != std::bit_cast<uint32_t>(b[i].values[j])) {
        return false;
      }
    }
  }
  return true;
}

// The tensors of both must be in name order.
inline bool same_snapshot(const Snapshot& a, const Snapshot& b) {
  return same_bits(a.weights, b.weights) && same_bits(a.optimizer, b.optimizer) &&
         same_bits(a.statistics, b.statistics) && a.manifest == b.manifest;
}

}  // namespace starling
