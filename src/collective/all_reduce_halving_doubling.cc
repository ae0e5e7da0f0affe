#include "collective/all_reduce_halving_doubling.h"

namespace starling {

std::vector<ReduceStep> halving_doubling_steps(size_t length, int world, int rank, size_t unit) {
  std::vector<ReduceStep> steps;
  Span range{0, length};
  for (int bit = 1; bit < world; bit *= 2) {
    const bool upper = (rank & bit) != 0;
    const size_t middle = range.begin + slice_cuts(range.size(), 2, unit)[1];
    const Span below{range.begin, middle}, above{middle, range.end};
    steps.push_back({.to = rank ^ bit,
                     .from = rank ^ bit,
                     .send = upper ? below : above,
                     .receive = upper ? above : below,
                     .add = true,
                     .own_left = !upper});
    range = upper ? above : below;
  }
  for (size_t s = steps.size(); s-- > 0;) {
    ReduceStep back = steps[s];
    std::swap(back.send, back.receive);
    back.add = false;
    steps.push_back(back);
  }
  return steps;
}

AllReduceHalvingDoubling::AllReduceHalvingDoubling(const Channel& channel,
                                                   const Arguments& arguments)
    : AllReduceStepped("all_reduce_halving_doubling", channel,
                       halving_doubling_steps(arguments.out.size(), channel.world(), channel.rank(),
                                              arguments.slice_unit),
                       arguments.partial, arguments.out) {}

}  // namespace starling
