#include "compare/estimate.h"

#include <array>
#include <cmath>

namespace starling {

double student_t_95(size_t degrees) {
  // From 1 degree of freedom on; beyond the table the expansion about the normal distribution is
  // right to three digits.
  constexpr std::array<double, 10> kTable = {12.706, 4.303, 3.182, 2.776, 2.571,
                                             2.447,  2.365, 2.306, 2.262, 2.228};
  if (degrees <= kTable.size()) return kTable[degrees - 1];
  constexpr double kNormal = 1.959964;
  const double z = kNormal, n = static_cast<double>(degrees);
  return z + (z * z * z + z) / (4 * n) +
         (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

Estimate estimate(std::span<const double> values) {
  Estimate result;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++result.count;
    result.mean += value;
  }
  if (result.count == 0) return result;
  const double n = static_cast<double>(result.count);
  result.mean /= n;
  if (result.count < 2) return result;
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - result.mean) * (value - result.mean);
  }
  result.half = student_t_95(result.count - 1) * std::sqrt(squares / (n - 1) / n);
  return result;
}

bool is_surely_less(const Estimate& a, const Estimate& b) {
  return a.half && b.half && a.high() < b.low();
}

}  // namespace starling
