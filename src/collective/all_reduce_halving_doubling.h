// all_reduce_halving_doubling: the sum in the bits of the tree, for worlds that are a power of two
// with aligned placement (Placement::is_aligned), in few steps.
//
// Steps s = 0, 1, …, log₂ n − 1: exchange halves of the range with rank ^ 2^s and add, so that
// neighbours join first, as in the tree; then the same peers in reverse order, with sums of
// doubling size. Bytes of each rank, L in all: 2 · L · (n−1)/n sent and received, in 2 · log₂ n
// steps.
#pragma once

#include "collective/all_reduce_stepped.h"

namespace starling {

// The steps of one rank; requires that world is a power of two.
std::vector<ReduceStep> halving_doubling_steps(size_t length, int world, int rank, size_t unit);

class AllReduceHalvingDoubling final : public AllReduceStepped {
 public:
  struct Arguments {
    const float* partial = nullptr;  // this rank's only one; may be out
    std::span<float> out;
    size_t slice_unit = 16;  // floats
  };
  AllReduceHalvingDoubling(const Channel& channel, const Arguments& arguments);
};

}  // namespace starling
