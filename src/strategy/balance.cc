#include "strategy/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace starling {
namespace {

// Of the time of the slowest workers. Where shards have a cost that does not grow with their
// number, prediction flatters: it takes what a worker loses for more than it is. It never takes
// what a worker gains for less, so no two placements can each seem better than the other.
constexpr double kLeastGain = 0.05;

// Steps first … last−1: how long they are, computing only.
double total_seconds(std::span<const int> counts, const MeasuredSteps& measured, size_t first,
                     size_t last) {
  double total = 0;
  for (size_t step = first; step < last; ++step)
    total += slowest_seconds(counts, measured.row(step));
  return total;
}

}  // namespace

double seconds_per_shard(double seconds, const StepSize& step, ShardRange range, int shards) {
  const int64_t rows =
      shard_begin(step.batch, range.end, shards) - shard_begin(step.batch, range.begin, shards);
  if (rows == 0) return 0;
  return seconds * static_cast<double>(step.batch) / static_cast<double>(rows * shards);
}

std::vector<int> balance_shards(std::span<const double> shard_seconds, int shards) {
  std::vector<int> counts(shard_seconds.size(), 1);
  const auto done = [&](size_t w) { return (counts[w] + 1) * shard_seconds[w]; };
  // Each of the others in turn goes where it would be done first: for equal pieces that is optimal.
  for (int left = shards - static_cast<int>(counts.size()); left > 0; --left) {
    size_t best = 0;
    for (size_t w = 1; w < counts.size(); ++w) {
      if (done(w) < done(best)) best = w;
    }
    ++counts[best];
  }
  return counts;
}

double slowest_seconds(std::span<const int> counts, std::span<const double> shard_seconds) {
  double slowest = 0;
  for (size_t w = 0; w < counts.size(); ++w)
    slowest = std::max(slowest, counts[w] * shard_seconds[w]);
  return slowest;
}

std::vector<double> median_seconds(const MeasuredSteps& measured) {
  std::vector<double> medians, of_worker(measured.steps());
  for (size_t w = 0; w < measured.workers; ++w) {
    for (size_t step = 0; step < of_worker.size(); ++step) of_worker[step] = measured.row(step)[w];
    const auto middle = of_worker.begin() + static_cast<std::ptrdiff_t>(of_worker.size() / 2);
    std::nth_element(of_worker.begin(), middle, of_worker.end());
    medians.push_back(*middle);
  }
  return medians;
}

std::optional<std::vector<int>> better_balance(std::span<const int> counts,
                                               const MeasuredSteps& measured) {
  const auto says_something = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  if (!std::all_of(measured.rows.begin(), measured.rows.end(), says_something)) return std::nullopt;
  std::vector<int> better =
      balance_shards(median_seconds(measured), std::accumulate(counts.begin(), counts.end(), 0));
  const auto gains = [&](size_t first, size_t last) {
    return total_seconds(better, measured, first, last) <=
           (1 - kLeastGain) * total_seconds(counts, measured, first, last);
  };
  const size_t middle = measured.steps() / 2;
  if (!gains(0, middle) || !gains(middle, measured.steps())) return std::nullopt;
  return better;
}

}  // namespace starling
