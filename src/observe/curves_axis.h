// The axes of a drawing: a range with round ticks that a person would have chosen. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace starling {

struct Axis {
  double low = 0, high = 1;  // low < high
  double step = 1;           // between ticks
  std::vector<double> ticks;
  bool logarithmic = false;  // then low > 0

  // Where a value lies: 0 at the low end, 1 at the high one; never outside.
  double position(double value) const;
  // A tick as text, with as many digits as the step needs.
  std::string label(double tick, bool percent) const;
};

// An axis that holds all finite values, with some air; percentages never go beyond 100. Positive
// values that differ by more than two orders of magnitude get a logarithmic one.
Axis value_axis(std::span<const double> values, bool percent);
// An axis from the first to the last epoch, with whole ticks.
Axis epoch_axis(std::span<const double> epochs);

}  // namespace starling
