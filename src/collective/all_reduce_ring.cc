#include "collective/all_reduce_ring.h"

#include "collective/merge_plan.h"

namespace starling {
namespace {

// The sum of the own partials, in out.
const float* sum_own(const AllReduceRing::Arguments& arguments) {
  std::vector<LeafRange> parts;
  for (size_t k = 0; k < arguments.partials.size(); ++k) parts.push_back({k, k + 1});
  MergePlan(std::move(parts)).sum(arguments.partials, arguments.out.size(), arguments.out.data());
  return arguments.out.data();
}

}  // namespace

std::vector<ReduceStep> ring_steps(size_t length, int world, int rank, size_t unit) {
  const std::vector<size_t> cuts = slice_cuts(length, static_cast<size_t>(world), unit);
  const auto slice = [&](int index) -> Span {
    const size_t i = static_cast<size_t>((index + 2 * world) % world);
    return {cuts[i], cuts[i + 1]};
  };
  std::vector<ReduceStep> steps;
  for (int round = 0; round < 2; ++round) {
    for (int s = 0; s < world - 1; ++s) {
      // In the second round a rank begins with the slice that it summed last.
      const int first = rank + round - s;
      steps.push_back({.to = (rank + 1) % world,
                       .from = (rank + world - 1) % world,
                       .send = slice(first),
                       .receive = slice(first - 1),
                       .add = round == 0,
                       .own_left = false});
    }
  }
  return steps;
}

AllReduceRing::AllReduceRing(const Channel& channel, const Arguments& arguments)
    : AllReduceStepped(
          "all_reduce_ring", channel,
          ring_steps(arguments.out.size(), channel.world(), channel.rank(), arguments.slice_unit),
          sum_own(arguments), arguments.out) {}

}  // namespace starling
