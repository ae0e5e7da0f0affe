// reduce_scatter: every rank ends with the sum of its own slice, in the bits of the tree.
//
// Parts: slice r is rank r's (slices.h); a partial is a whole subtree, summed by its worker.
// Steps, all ranks at once, chunk by chunk: send each own partial of slice p to rank p, for all p;
// receive everybody's partials of the own slice; add them in tree order.
// Bytes of rank r, L bytes in all, slices of equal size, n ranks, P partials of which p_r are its
// own: sent p_r · L · (n−1)/n; received (P − p_r) · L/n.
// Memory beside the caller's: `window` chunks for each partial of others.
#pragma once

#include "collective/operation.h"
#include "collective/placement.h"
#include "collective/slices.h"
#include "tensor/buffer.h"

namespace starling {

class ReduceScatter final : public Operation {
 public:
  struct Arguments {
    const Placement* placement = nullptr;    // stays until the end, as all that is pointed to
    std::span<const float* const> partials;  // of this rank; each as long as cuts.back()
    std::vector<size_t> cuts;                // of slices: see slice_cuts
    float* slice = nullptr;  // this rank's slice of the sum; may be that of one of its partials
  };

  ReduceScatter(const Channel& channel, Arguments arguments, const char* name = "reduce_scatter");

  // Chunks of the own slice that are summed, and chunks of the slice of `peer` whose partials have
  // left: their memory is free.
  size_t chunks_summed() const { return summed_; }
  size_t chunks_sent(int peer) const;

  size_t step() const override { return Operation::step(); }
  std::optional<Transfer> waiting() const override { return Operation::waiting(); }
  void abandon() override { Operation::abandon(); }

 private:
  void go_on() override;
  Span slice(int rank) const;
  float* place(size_t chunk, size_t foreign);
  void sum_next();

  Arguments arguments_;
  size_t chunk_;       // floats
  size_t chunks_ = 0;  // of the own slice
  size_t summed_ = 0;
  std::vector<std::vector<Stream*>> sends_;  // by peer and own partial
  std::vector<Stream*> receives_;            // by partial of others, in leaf order
  std::vector<const float*> parts_;          // all, in leaf order: of the chunk being summed
  Buffer<float> received_;
};

}  // namespace starling
