// ShmBarrier: processes of one host wait for each other, through a counter per rank in shared
// memory, each on a cache line of its own, which only its rank writes. Passing it costs one store
// and a look at the others' counters: a few hundred nanoseconds when all are there. Those who wait
// spin briefly, then sleep on their bell in the roster.
//
// It has no more state than the counters: a rank that dies leaves nothing locked. A rank may arrive
// and go on with other work before it asks for the others. What a rank wrote before arriving is
// visible to those who saw it arrive. One thread per rank.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "fabric/shm/roster.h"

namespace starling {

// How ranks wait for one another: looks at once and then often for a while, as most waits are
// short; then for `spin` with pauses; then sleeps on the rank's bell between looks. `missing` says
// which rank is still waited for, −1 for none; what it reads is written with sequential consistency
// before the bell is rung. A missing rank that is gone is a failure, as is the deadline; `count` is
// for the message.
Status wait_for_ranks(Roster& roster, FunctionRef<int()> missing, std::chrono::nanoseconds spin,
                      uint64_t count, Instant deadline);

class ShmBarrier {
 public:
  static size_t bytes(int world);

  // `memory` is shared, of that many bytes, zero at first; it and the roster outlive the barrier.
  // The roster has this rank.
  ShmBarrier(Roster& roster, std::span<std::byte> memory, std::chrono::nanoseconds spin);

  // This rank is here, for the next time: the returned number counts them from 1.
  uint64_t arrive();
  // How often the rank has arrived.
  uint64_t arrived(int rank) const { return lines_[rank].count.load(std::memory_order_acquire); }
  // Whether all have arrived `count` times.
  bool all_arrived(uint64_t count) const { return missing(count) < 0; }

  // Waits until one rank, or all, have arrived `count` times. A rank that is gone without having
  // arrived is a failure, as is the deadline; the barrier may be waited for again.
  Status wait_for(int rank, uint64_t count, Instant deadline);
  Status wait_for_all(uint64_t count, Instant deadline);
  // arrive() and wait_for_all().
  Status pass(Instant deadline);

 private:
  struct Line {
    alignas(64) std::atomic<uint64_t> count;
  };

  int missing(uint64_t count) const;

  Roster& roster_;
  Line* const lines_;
  const std::chrono::nanoseconds spin_;
};

}  // namespace starling
