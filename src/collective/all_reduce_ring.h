// all_reduce_ring: the sum in another order than the tree's, only for `exact = false`. All ranks
// still end with the same bits, as each slice is summed once.
//
// Steps s = 0 … n−2: send slice r − s to the next rank, receive slice r − s − 1 from the one before
// and add; then n−1 steps more in which the sums go round. Bytes of each rank, L in all:
// 2 · L · (n−1)/n sent and received, whatever the number of partials, which are summed before.
#pragma once

#include "collective/all_reduce_stepped.h"

namespace starling {

std::vector<ReduceStep> ring_steps(size_t length, int world, int rank, size_t unit);

class AllReduceRing final : public AllReduceStepped {
 public:
  struct Arguments {
    std::span<const float* const> partials;  // of this rank, may be none; each as long as out
    std::span<float> out;                    // may be one of them
    size_t slice_unit = 16;                  // floats
  };
  AllReduceRing(const Channel& channel, const Arguments& arguments);
};

}  // namespace starling
