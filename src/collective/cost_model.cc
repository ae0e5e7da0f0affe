#include "collective/cost_model.h"

#include <algorithm>
#include <bit>

namespace starling {

const char* name_of(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kDirect:
      return "all_reduce_direct";
    case AllReduceAlgorithm::kHalvingDoubling:
      return "all_reduce_halving_doubling";
    case AllReduceAlgorithm::kRing:
      return "all_reduce_ring";
  }
  return "unknown";
}

LinkCosts fit_costs(std::span<const LinkTime> times, LinkCosts costs) {
  const double n = static_cast<double>(times.size());
  double mean_bytes = 0, mean_seconds = 0;
  for (const LinkTime& time : times) {
    mean_bytes += static_cast<double>(time.bytes) / n;
    mean_seconds += time.seconds / n;
  }
  double products = 0, squares = 0;
  for (const LinkTime& time : times) {
    const double away = static_cast<double>(time.bytes) - mean_bytes;
    products += away * (time.seconds - mean_seconds);
    squares += away * away;
  }
  costs.byte_s = std::max(0.0, products / squares);
  costs.latency_s = std::max(0.0, mean_seconds - costs.byte_s * mean_bytes);
  return costs;
}

LinkCosts slower_of(const LinkCosts& a, const LinkCosts& b) {
  return {std::max(a.latency_s, b.latency_s), std::max(a.message_s, b.message_s),
          std::max(a.byte_s, b.byte_s)};
}

double all_reduce_bytes(AllReduceAlgorithm algorithm, size_t bytes, const Placement& placement) {
  const double n = static_cast<double>(placement.workers()), length = static_cast<double>(bytes);
  const double share = length * (n - 1) / n;
  if (algorithm != AllReduceAlgorithm::kDirect) return 2 * share;
  const double partials = static_cast<double>(placement.partials().size());
  double most = 0;
  for (size_t rank = 0; rank < placement.workers(); ++rank) {
    const double own = static_cast<double>(placement.partials(rank).size());
    most = std::max({most, (own + 1) * share, (partials - own) * length / n + share});
  }
  return most;
}

double all_reduce_seconds(AllReduceAlgorithm algorithm, size_t bytes, const Placement& placement,
                          const LinkCosts& costs) {
  const double others = static_cast<double>(placement.workers() - 1);
  if (others == 0) return 0;
  const double moving = all_reduce_bytes(algorithm, bytes, placement) * costs.byte_s;
  switch (algorithm) {
    case AllReduceAlgorithm::kDirect:
      // Two rounds, in each of which a rank serves all the others, one after another.
      return 2 * costs.latency_s +
             others * (static_cast<double>(placement.partials_max()) + 1) * costs.message_s +
             moving;
    case AllReduceAlgorithm::kHalvingDoubling:
      return 2 * static_cast<double>(std::bit_width(placement.workers() - 1)) *
                 (costs.latency_s + costs.message_s) +
             moving;
    case AllReduceAlgorithm::kRing:
      return 2 * others * (costs.latency_s + costs.message_s) + moving;
  }
  return 0;
}

bool can_use(AllReduceAlgorithm algorithm, const Placement& placement, bool exact) {
  if (algorithm == AllReduceAlgorithm::kRing) return !exact;
  return algorithm != AllReduceAlgorithm::kHalvingDoubling || placement.is_aligned();
}

AllReduceAlgorithm choose_all_reduce(size_t bytes, const Placement& placement,
                                     const LinkCosts& costs, bool exact) {
  AllReduceAlgorithm best = AllReduceAlgorithm::kDirect;
  for (const auto algorithm : {AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kRing}) {
    if (can_use(algorithm, placement, exact) &&
        all_reduce_seconds(algorithm, bytes, placement, costs) <
            all_reduce_seconds(best, bytes, placement, costs)) {
      best = algorithm;
    }
  }
  return best;
}

}  // namespace starling
