// all_reduce_shared: the sum in the bits of the tree, for ranks of one host whose buffers lie in
// shared memory.
//
// Long vectors: no byte is copied from process to process, each rank sums its share of the elements
// over everybody's partials, where they lie. Parts: slice r of the elements is rank r's share
// (slices.h). Steps: (1) wait until all are here; sum the share and store it, once into a shared
// result, or into an array of every rank; (2) wait until all are done. Bytes on the wire: none.
// Memory traffic per rank, L bytes, n ranks, P partials, m arrays stored to: reads P · L/n, writes
// m · L/n.
//
// Short vectors (up to kPostedBytes a rank) into an array of every rank: waiting takes longer than
// adding, so there is one wait instead of two, and every rank sums all of it. Steps: copy the own
// partials to the rank's slot, a number and the floats behind it, in the cache line of the number
// as far as they fit; wait for everybody's number; sum all slots into the own array. Slots are used
// in turn: who posts for the next time has read all of this one, so two are enough.
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

class SharedAllReduce {
 public:
  struct Arguments {
    const Placement* placement = nullptr;  // stays until the end, as all that is pointed to
    size_t length = 0;                     // floats
    // Of all ranks, in leaf order: placement->partials().
    std::span<const float* const> partials;
    // One shared result, or arrays of the ranks, which may be one of their partials. The same
    // memory on all ranks. With an array for every rank, number r is rank r's, and when it is over
    // on this rank only this rank's is known to be complete.
    std::span<float* const> outs;
  };

  // Of shared memory, zero at first, aligned to 64 bytes, that all ranks give to their object.
  static size_t bytes(int world);

  // Memory and roster outlive it.
  SharedAllReduce(Roster& roster, std::span<std::byte> memory, std::chrono::nanoseconds spin);

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
  struct Slot;
  static constexpr size_t kPostedBytes = 256;  // four lines come about as fast as a second wait

  bool can_post(const Arguments& arguments) const;
  Slot& slot(int rank) const;  // the one of this time
  void post();
  int not_posted() const;  // the first such rank, or −1
  void sum_slots();
  void prepare_share();
  void sum_share();
  Failure describe(const Failure& cause) const;

  Roster& roster_;
  ShmBarrier barrier_;  // arrived at once to begin, once more when the share is summed
  Arguments arguments_;
  enum class Stage : uint8_t { kIdle, kPosted, kStarted, kSummed } stage_ = Stage::kIdle;
  uint64_t count_ = 0;   // which arrival of all is waited for
  std::byte* slots_;     // two of every rank
  uint64_t posted_ = 0;  // how often
  const std::chrono::nanoseconds spin_;
  size_t share_length_ = 0;
  Span share_;  // of a vector of that length
  // The partials and outs at this rank's share: kept, as even a small allocation shows here.
  std::vector<const float*> parts_;
  std::vector<float*> outs_;
};

}  // namespace starling
