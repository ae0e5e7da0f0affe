// all_reduce_shared: the sum in the bits of the tree, for ranks of one host whose buffers lie in
// shared memory. No byte is copied from process to process: each rank sums its share of the
// elements over everybody's partials, where they lie.
//
// Parts: slice r of the elements is rank r's share (slices.h). Steps: (1) wait until all are here;
// sum the share and store it, once into a shared result, or into an array of every rank; (2) wait
// until all are done. Bytes on the wire: none. Memory traffic per rank, L bytes, n ranks, P
// partials, m arrays stored to: reads P · L/n, writes m · L/n.
//
// One object is one all-reduce under way; for several at once take several, in the same order on
// all ranks. When a rank is lost the others fail; with one shared result the partials are intact
// then, in place they are partly overwritten. After a failure it is of no more use. One thread per
// rank; only wait() blocks.
#pragma once

#include <memory>

#include "base/result.h"
#include "collective/placement.h"
#include "collective/slices.h"
#include "fabric/shm/shm_barrier.h"

namespace starling {

class AllReduceShared {
 public:
  struct Arguments {
    const Placement* placement = nullptr;  // stays until the end, as all that is pointed to
    size_t length = 0;                     // floats
    // Of all ranks, in leaf order: placement->partials().
    std::span<const float* const> partials;
    // One shared result, or an array of every rank, which may be one of its partials. The same
    // memory on all ranks.
    std::span<float* const> outs;
  };

  // Of shared memory, zero at first, aligned to 64 bytes, that all ranks give to their object.
  static size_t bytes(int world) { return ShmBarrier::bytes(world); }

  // Memory and roster outlive it.
  AllReduceShared(Roster& roster, std::span<std::byte> memory, std::chrono::nanoseconds spin);

  // This rank's partials are complete. Requires that the one before is over.
  void start(const Arguments& arguments);
  // Goes on as far as it can without waiting for others; true when it is over.
  bool advance();
  // Waits until it is over, or the deadline has come, which is a failure. A rank that waits sums as
  // soon as all have started.
  Status wait(Instant deadline);

  // The floats that a rank sums: a share begins on a cache line, that of a long vector on a page.
  static Span share_of(size_t length, int world, int rank);

 private:
  void sum_share();
  Failure describe(const Failure& cause) const;

  Roster& roster_;
  ShmBarrier barrier_;  // arrived at once to begin, once more when the share is summed
  Arguments arguments_;
  enum class Stage : uint8_t { kIdle, kStarted, kSummed } stage_ = Stage::kIdle;
  uint64_t count_ = 0;  // which arrival of all is waited for
  // The partials and outs at this rank's share: kept, as even a small allocation shows here.
  std::vector<const float*> parts_;
  std::vector<float*> outs_;
};

}  // namespace starling
