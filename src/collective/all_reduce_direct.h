// all_reduce_direct: the sum in the bits of the tree, for any world, placement and length.
//
// Steps: reduce_scatter (reduce_scatter.h), and as soon as a chunk of the own slice is summed,
// all_gather of it (all_gather.h): the two overlap chunk by chunk.
// Bytes of rank r, L bytes in all, n ranks, P partials of which p_r are its own: sent
// (p_r + 1) · L · (n−1)/n; received (P − p_r) · L/n + L · (n−1)/n. With one partial each that is
// 2 · L · (n−1)/n both ways, the least there is.
#pragma once

#include "collective/all_gather.h"
#include "collective/reduce_scatter.h"

namespace starling {

class AllReduceDirect final : public Operation {
 public:
  struct Arguments {
    const Placement* placement = nullptr;
    std::span<const float* const> partials;  // of this rank; each as long as `out`
    std::span<float> out;                    // may be one of the partials
    size_t slice_unit = 16;                  // floats: slices begin on multiples of it
  };

  AllReduceDirect(const Channel& channel, const Arguments& arguments);

 private:
  void go_on() override;
  size_t step() const override { return scatter_.step() + gather_.step(); }
  std::optional<Transfer> waiting() const override;
  void abandon() override;

  ReduceScatter scatter_;
  AllGather gather_;
};

}  // namespace starling
