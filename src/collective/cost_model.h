// The cost model: which all-reduce is fastest, told from message size, world, placement and the
// speed of the links. A pure function of numbers that all ranks agree on (defaults, or measured and
// broadcast), so that all choose alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/placement.h"

namespace starling {

enum class AllReduceAlgorithm : uint8_t { kDirect, kHalvingDoubling, kRing };

// As in docs/algorithms.md: "all_reduce_direct".
const char* name_of(AllReduceAlgorithm algorithm);

// Of one link; the defaults are those of sockets on loopback.
struct LinkCosts {
  double latency_s = 25e-6;   // from the start of a message to its arrival
  double message_s = 3e-6;    // that one message keeps its sender or receiver busy
  double byte_s = 1.0 / 3e9;  // per byte, each way at once

  double gbit_per_s() const { return byte_s > 0 ? 8e-9 / byte_s : 0; }
};

// A line through times measured for messages of several sizes: latency and byte_s by least squares,
// neither below 0; message_s stays. Requires two sizes that differ.
struct LinkTime {
  size_t bytes = 0;
  double seconds = 0;
};
LinkCosts fit_costs(std::span<const LinkTime> times, LinkCosts costs = {});
// Of two links, the worse of each.
LinkCosts slower_of(const LinkCosts& a, const LinkCosts& b);

// The bytes that the busiest rank sends or receives, whichever is more; slices of equal size.
double all_reduce_bytes(AllReduceAlgorithm algorithm, size_t bytes, const Placement& placement);
// How long it should take.
double all_reduce_seconds(AllReduceAlgorithm algorithm, size_t bytes, const Placement& placement,
                          const LinkCosts& costs);

// Whether it can be used at all: the ring never when `exact`, halving-doubling with aligned
// placement.
bool can_use(AllReduceAlgorithm algorithm, const Placement& placement, bool exact);
AllReduceAlgorithm choose_all_reduce(size_t bytes, const Placement& placement,
                                     const LinkCosts& costs, bool exact);

}  // namespace starling
