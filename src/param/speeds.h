// Speeds: how fast the workers of the parameter service compute, from what their gradients took.
// The median of the last few: one that was held up for a moment changes nothing, and what lasts
// counts after three. A plain object.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

namespace starling {

class Speeds {
 public:
  static constexpr size_t kGradients = 5;  // that are looked at

  // As it was measured by others, in samples per second; 0 says nothing.
  void know(int worker, double speed);
  // A gradient of so many samples took the worker so long. Figures that say nothing are ignored.
  void add(int worker, uint64_t samples, double seconds);

  // Samples per second; 0 when nothing is known.
  double of(int worker) const;
  // Of each of these, above 0; who is not known counts as the mean of the others.
  std::vector<double> of_all(std::span<const int> workers) const;

 private:
  std::map<int, std::deque<double>> speeds_;  // by worker, the newest last
};

}  // namespace starling
