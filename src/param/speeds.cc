#include "param/speeds.h"

#include <algorithm>
#include <cmath>

namespace starling {
namespace {

bool says_something(double speed) { return std::isfinite(speed) && speed > 0; }

}  // namespace

void Speeds::know(int worker, double speed) {
  if (says_something(speed)) speeds_[worker].assign(kGradients, speed);
}

void Speeds::add(int worker, uint64_t samples, double seconds) {
  const double speed = static_cast<double>(samples) / seconds;
  if (!says_something(speed)) return;
  std::deque<double>& last = speeds_[worker];
  last.push_back(speed);
  if (last.size() > kGradients) last.pop_front();
}

double Speeds::of(int worker) const {
  const auto found = speeds_.find(worker);
  if (found == speeds_.end()) return 0;
  std::vector<double> last(found->second.begin(), found->second.end());
  // Of two the faster: things are held up, never helped.
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::nth_element(last.begin(), middle, last.end());
  return *middle;
}

std::vector<double> Speeds::of_all(std::span<const int> workers) const {
  std::vector<double> speeds;
  double sum = 0, known = 0;
  for (const int worker : workers) {
    speeds.push_back(of(worker));
    sum += speeds.back();
    known += speeds.back() > 0 ? 1 : 0;
  }
  const double usual = known > 0 ? sum / known : 1;
  std::replace(speeds.begin(), speeds.end(), 0.0, usual);
  return speeds;
}

}  // namespace starling
