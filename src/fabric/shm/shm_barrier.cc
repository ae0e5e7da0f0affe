#include "fabric/shm/shm_barrier.h"

#include <fmt/format.h>

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// Turns of spinning between two looks at the clock and at who is gone.
constexpr int kTurns = 32;

Failure failure(FailureKind kind, int rank, int peer, uint64_t count, Instant began) {
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - began;
  return {kind, peer,
          fmt::format("barrier rank={} count={}: peer {} {} after {:.3g} ms", rank, count, peer,
                      kind == FailureKind::kPeerGone ? "is gone" : "has not come in time",
                      elapsed.count())};
}

}  // namespace

size_t ShmBarrier::bytes(int world) { return static_cast<size_t>(world) * sizeof(Line); }

ShmBarrier::ShmBarrier(Roster& roster, std::span<std::byte> memory, std::chrono::nanoseconds spin)
    : roster_(roster), lines_(reinterpret_cast<Line*>(memory.data())), spin_(spin) {}

uint64_t ShmBarrier::arrive() {
  std::atomic<uint64_t>& own = lines_[roster_.rank()].count;
  const uint64_t count = own.load(std::memory_order_relaxed) + 1;
  own.store(count);  // sequentially consistent: against those who are about to sleep
  roster_.ring_all();
  return count;
}

int ShmBarrier::missing(uint64_t count) const {
  for (int rank = 0; rank < roster_.world(); ++rank) {
    if (arrived(rank) < count) return rank;
  }
  return -1;
}

Status ShmBarrier::wait(int first, int last, uint64_t count, Instant deadline) {
  int rank = first;
  const auto here = [&] {
    while (rank <= last && lines_[rank].count.load() >= count) ++rank;
    return rank > last;
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    if (here()) return {};
    spin_pause();
  }
  const Instant began = Clock::now();
  for (Instant now = began;; now = Clock::now()) {
    // In this order: a rank may arrive and then die.
    const bool lost = roster_.gone(rank);
    if (here()) break;
    if (lost && roster_.gone(rank)) {
      roster_.disarm();
      return failure(FailureKind::kPeerGone, roster_.rank(), rank, count, began);
    }
    if (now >= deadline) {
      roster_.disarm();
      return failure(FailureKind::kDeadline, roster_.rank(), rank, count, began);
    }
    if (now - began < spin_) {
      for (int turn = 0; turn < kTurns && !here(); ++turn) spin_pause();
      if (rank > last) break;
    } else if (!roster_.armed()) {
      roster_.arm();
    } else {
      roster_.sleep(deadline, now);
    }
  }
  roster_.disarm();
  return {};
}

Status ShmBarrier::wait_for(int rank, uint64_t count, Instant deadline) {
  return wait(rank, rank, count, deadline);
}

Status ShmBarrier::wait_for_all(uint64_t count, Instant deadline) {
  return wait(0, roster_.world() - 1, count, deadline);
}

Status ShmBarrier::pass(Instant deadline) { return wait_for_all(arrive(), deadline); }

}  // namespace starling
