#include "param/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "starling/error.h"

namespace starling {
namespace {

constexpr double kAboutRight = 0.1;

}  // namespace

PartitionKind partition_from_name(const std::string& name) {
  if (name == "dynamic") return PartitionKind::kDynamic;
  if (name == "equal") return PartitionKind::kEqual;
  if (name == "weighted") return PartitionKind::kWeighted;
  throw input_error(fmt::format("strategy.partition = \"{}\" is not known", name),
                    "use dynamic, equal or weighted");
}

std::vector<uint64_t> whole_parts(uint64_t total, const std::vector<double>& figures) {
  // Cut where the sums so far say: the parts can't but add up.
  const double sum = std::accumulate(figures.begin(), figures.end(), 0.0);
  std::vector<uint64_t> parts;
  double so_far = 0;
  uint64_t begin = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    so_far += figures[i];
    const auto cut = static_cast<uint64_t>(std::llround(static_cast<double>(total) * so_far / sum));
    const uint64_t end = i + 1 == figures.size() ? total : std::clamp(cut, begin, total);
    parts.push_back(end - begin);
    begin = end;
  }
  return parts;
}

Partition::Partition(const PartitionOptions& options, Speeds speeds)
    : options_(options), speeds_(std::move(speeds)) {
  if (options_.kind == PartitionKind::kDynamic) return;
  const bool equal = options_.kind == PartitionKind::kEqual;
  const std::vector<uint64_t> shares =
      whole_parts(options_.samples, equal ? std::vector<double>(options_.workers.size(), 1.0)
                                          : speeds_.of_all(options_.workers));
  for (size_t i = 0; i < shares.size(); ++i) shares_[options_.workers[i]] = shares[i];
}

size_t Partition::waited_for(size_t workers) const {
  return workers > options_.spare ? workers - options_.spare : 1;
}

uint64_t Partition::parts_of_round() const {
  return options_.tasks > 0 ? options_.tasks : waited_for(options_.workers.size());
}

uint64_t Partition::most(int worker) const {
  return is_common() ? options_.batch : std::min(options_.batch, shares_.at(worker));
}

uint64_t Partition::lease(int worker) const {
  // Rounded up, so that no samples are left of a round when all of its tasks are lent.
  const uint64_t parts = parts_of_round(), more = options_.tasks > 0 ? parts - 1 : 0;
  const uint64_t size = follows_speed() ? lease_by_speed(worker)
                                        : std::max<uint64_t>(1, (options_.batch + more) / parts);
  return std::min(size, most(worker));
}

uint64_t Partition::lease_by_speed(int worker) const {
  std::vector<int> there;
  for (const int other : options_.workers) {
    if (other == worker || is_common() || shares_.at(other) > 0) there.push_back(other);
  }
  std::vector<double> speeds = speeds_.of_all(there);
  const auto at = std::find(there.begin(), there.end(), worker);
  const double own = speeds[static_cast<size_t>(at - there.begin())];
  // A round waits for the fastest. Who is slower than those must not come before one of them with a
  // smaller gradient, and have that dropped.
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  speeds.resize(waited_for(speeds.size()));
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const auto batch = static_cast<double>(options_.batch);
  const double size = std::clamp(batch * (std::max(own, speeds.back()) / sum), 1.0, batch);
  const auto last = sizes_.find(worker);
  if (last != sizes_.end()) {
    const auto before = static_cast<double>(last->second);
    if (std::abs(size - before) <= std::max(kAboutRight * before, 0.6)) return last->second;
  }
  return static_cast<uint64_t>(std::round(size));
}

void Partition::lend(int worker, uint64_t samples) {
  if (follows_speed()) sizes_[worker] = lease_by_speed(worker);
  if (!is_common()) shares_.at(worker) -= samples;
}

void Partition::give_back(int worker, uint64_t samples) {
  if (!is_common()) shares_.at(worker) += samples;
}

void Partition::took(int worker, uint64_t samples, double seconds) {
  speeds_.add(worker, samples, seconds);
}

}  // namespace starling
