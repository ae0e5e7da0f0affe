#include "strategy/weight_copies.h"

#include "base/claim.h"
#include "strategy/lane_blocks.h"

namespace starling {
namespace {

// Weights up to which copies pay: more would not stay in the caches of those that read them.
constexpr size_t kCopiedBytes = size_t{2} << 20;
// Lanes up to which they pay: every update writes as many copies. Measured with two.
constexpr size_t kCopiesMost = 4;

}  // namespace

bool has_weight_copies(const ParameterSpace& space, size_t lanes) {
  return lanes > 1 && lanes <= kCopiesMost && copies_pay() &&
         space.total_floats() * sizeof(float) <= kCopiedBytes;
}

std::vector<LaneWeights> lane_weights(const ParameterSpace& space, BlockRange range,
                                      std::span<float* const> copies) {
  const auto offset = [&](size_t block) {
    return block < space.blocks().size() ? space.blocks()[block].offset : space.total_floats();
  };
  std::vector<LaneWeights> result;
  const auto lanes = static_cast<int>(copies.size());
  for (int lane = 0; lane < lanes; ++lane) {
    const BlockRange own = lane_blocks(space, range, lane, lanes);
    result.push_back({copies[static_cast<size_t>(lane)], offset(own.first), offset(own.last)});
  }
  return result;
}

}  // namespace starling
