// Collectives::measure_costs: messages of a few sizes there and back, between rank 0 and each other
// rank in turn. The quickest of several counts: what is slower was disturbed.
#include <algorithm>
#include <array>
#include <cstring>

#include "collective/collectives.h"

namespace starling {
namespace {

constexpr std::array<size_t, 3> kSizes = {8, 64 << 10, 1 << 20};
constexpr int kRounds = 8;

}  // namespace

Result<LinkCosts> Collectives::measure_from_root(Instant deadline) {
  std::vector<LinkTime> slowest;
  for (const size_t size : kSizes) slowest.push_back({size, 0});
  std::vector<std::byte> bytes(kSizes.back());
  for (int peer = 1; peer < world(); ++peer) {
    for (LinkTime& time : slowest) {
      const auto message = std::span(bytes).first(time.bytes);
      std::chrono::nanoseconds best = std::chrono::nanoseconds::max();
      for (int round = 0; round < kRounds; ++round) {
        const Instant began = fabric_.now();
        const Status there = send(fabric_, peer, measure_tag_, message, deadline);
        if (!there) return there.failure();
        const Status back = receive(fabric_, peer, measure_tag_, message, deadline);
        if (!back) return back.failure();
        best = std::min<std::chrono::nanoseconds>(best, fabric_.now() - began);
      }
      const double one_way = std::chrono::duration<double>(best).count() / 2;
      time.seconds = std::max(time.seconds, one_way);
    }
  }
  return fit_costs(slowest, options_.costs);
}

Status Collectives::echo_to_root(Instant deadline) {
  std::vector<std::byte> bytes(kSizes.back());
  for (const size_t size : kSizes) {
    const auto message = std::span(bytes).first(size);
    for (int round = 0; round < kRounds; ++round) {
      const Status there = receive(fabric_, 0, measure_tag_, message, deadline);
      if (!there) return there;
      const Status back = send(fabric_, 0, measure_tag_, message, deadline);
      if (!back) return back;
    }
  }
  return {};
}

Result<LinkCosts> Collectives::measure_costs(Instant deadline) {
  if (world() == 1) return options_.costs;
  if (broken_) return *broken_;
  LinkCosts costs = options_.costs;
  Status measured;
  if (rank() == 0) {
    const Result<LinkCosts> result = measure_from_root(deadline);
    if (result) {
      costs = result.value();
    } else {
      measured = result.failure();
    }
  } else {
    measured = echo_to_root(deadline);
  }
  if (!measured) {
    break_with(measured.failure());
    return measured.failure();
  }
  const Status agreed = wait(broadcast(0, std::as_writable_bytes(std::span(&costs, 1))), deadline);
  if (!agreed) return agreed.failure();
  set_costs(costs);
  return costs;
}

}  // namespace starling
