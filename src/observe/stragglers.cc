#include "observe/stragglers.h"

#include <algorithm>

namespace starling {
namespace {

// Anything can hold a worker up for a moment.
constexpr int kLooks = 4;
constexpr double kWhile_s = 1;

}  // namespace

double usual_seconds(std::span<const double> seconds) {
  std::vector<double> known;
  std::copy_if(seconds.begin(), seconds.end(), std::back_inserter(known),
               [](double s) { return s > 0; });
  if (known.empty()) return 0;
  // The lower median: of two workers the faster one is the measure.
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

std::vector<size_t> StragglerWatch::look(std::span<const int> workers,
                                         std::span<const double> seconds, double now_s) {
  const double limit = kStragglerFactor * usual_seconds(seconds);
  std::vector<size_t> found;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (seconds[i] <= limit) {
      slow_.erase(workers[i]);
      continue;
    }
    Slow& slow = slow_.try_emplace(workers[i], Slow{now_s}).first->second;
    if (++slow.looks >= kLooks && now_s - slow.since_s >= kWhile_s &&
        named_.insert(workers[i]).second) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace starling
