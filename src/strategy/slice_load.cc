#include "strategy/slice_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace starling {
namespace {

constexpr double kSecondsLeast = 0.001;  // of serving, to know a speed
constexpr double kWorthwhile = 0.8;
constexpr int kRounds = 200;

// How long each takes for an update: it keeps its own slice and perhaps a copy.
std::vector<double> times_of(const Ownership& owners, const std::vector<double>& shares,
                             const std::vector<double>& speeds) {
  std::vector<double> times;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double copied = owners.has_copies() ? shares[owners.copied_by(i)] : 0;
    times.push_back((shares[i] + copied) / speeds[i]);
  }
  return times;
}

void normalize(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

}  // namespace

std::vector<double> shares_by_load(const Ownership& owners, std::span<const ServedLoad> loads) {
  std::vector<double> speeds, now;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].seconds < kSecondsLeast || loads[i].floats <= 0) return {};
    speeds.push_back(loads[i].floats / loads[i].seconds);
    now.push_back(static_cast<double>(owners.floats(i).size()));
  }
  if (!owners.keepers().empty() || now.size() < 2) return {};
  normalize(now);
  // A slice is the smaller the longer those take that keep it.
  std::vector<double> shares = speeds;
  normalize(shares);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> times = times_of(owners, shares, speeds);
    const double mean = std::accumulate(times.begin(), times.end(), 0.0) / double(times.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      const double kept = owners.has_copies() ? times[(i + 1) % times.size()] : times[i];
      shares[i] *= std::sqrt(2 * mean / (times[i] + kept));
    }
    normalize(shares);
  }
  const auto longest = [&](const std::vector<double>& some) {
    const std::vector<double> times = times_of(owners, some, speeds);
    return *std::max_element(times.begin(), times.end());
  };
  return longest(shares) < kWorthwhile * longest(now) ? shares : std::vector<double>();
}

}  // namespace starling
