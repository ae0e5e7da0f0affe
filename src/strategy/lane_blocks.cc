#include "strategy/lane_blocks.h"

namespace starling {
namespace {

// Below this many floats an update takes less time than waking the lanes.
constexpr size_t kAloneFloats = 32 * 1024;

}  // namespace

BlockRange lane_blocks(const ParameterSpace& space, BlockRange range, int lane, int lanes) {
  if ((range.last - range.first) * kBlockElements < kAloneFloats)
    return lane == 0 ? range : BlockRange{range.last, range.last};
  const auto first_of = [&](int index) {
    return space.share_begin(range.first, range.last, static_cast<size_t>(index),
                             static_cast<size_t>(lanes));
  };
  return {first_of(lane), first_of(lane + 1)};
}

}  // namespace starling
