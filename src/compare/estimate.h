// Estimate: what several seeds say about one figure: the mean, and a 95% interval by Student's t.
// Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace starling {

struct Estimate {
  size_t count = 0;  // of seeds; 0: there is no figure
  double mean = 0;
  std::optional<double> half;  // of the interval's width; absent with fewer than 2 seeds

  bool is_there() const { return count > 0; }
  double low() const { return mean - half.value_or(0); }
  double high() const { return mean + half.value_or(0); }
};

// Numbers that are not finite are left out.
Estimate estimate(std::span<const double> values);

// Whether the interval of `a` lies below that of `b` as a whole; false when one has none.
bool is_surely_less(const Estimate& a, const Estimate& b);

// The number t of a 95% interval, mean ± t · s/√n, for n - 1 degrees of freedom, 1 or more.
double student_t_95(size_t degrees);

}  // namespace starling
