#include "fabric/shm/shm_barrier.h"

#include <fmt/format.h>

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// Looks at the others' counters before the first pause: a pause is as long as a cache line needs
// from core to core, so that every one of them shows in a short wait.
constexpr int kLooks = 64;
// Turns of spinning between two looks at the clock and at who is gone.
constexpr int kTurns = 32;

Failure failure(FailureKind kind, int rank, int peer, uint64_t count, Instant began) {
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - began;
  return {kind, peer,
          fmt::format("barrier rank={} count={}: peer {} {} after {:.3g} ms", rank, count, peer,
                      kind == FailureKind::kPeerGone    ? "is gone"
                      : kind == FailureKind::kStaleView ? "was waited for when a new view began"
                                                        : "has not come in time",
                      elapsed.count())};
}

}  // namespace

size_t ShmBarrier::bytes(int world) { return static_cast<size_t>(world) * sizeof(Line); }

ShmBarrier::ShmBarrier(Roster& roster, std::span<std::byte> memory, std::chrono::nanoseconds spin)
    : roster_(roster), lines_(reinterpret_cast<Line*>(memory.data())), spin_(spin) {}

uint64_t ShmBarrier::arrive() {
  std::atomic<uint64_t>& own = lines_[roster_.rank()].count;
  const uint64_t count = own.load(std::memory_order_relaxed) + 1;
  own.store(count, std::memory_order_release);
  roster_.fence();
  roster_.ring_all();
  return count;
}

int ShmBarrier::missing(uint64_t count) const {
  for (int rank = 0; rank < roster_.world(); ++rank) {
    if (arrived(rank) < count) return rank;
  }
  return -1;
}

Status wait_for_ranks(Roster& roster, FunctionRef<int()> missing, std::chrono::nanoseconds spin,
                      uint64_t count, Instant deadline) {
  for (int look = 0; look < kLooks; ++look) {
    if (missing() < 0) return {};
  }
  const Instant began = Clock::now();
  int rank = missing();
  for (Instant now = began; rank >= 0; now = Clock::now()) {
    // In this order: a rank may arrive and then die.
    const bool lost = roster.gone(rank), interrupted = roster.interrupted();
    const int still = missing();
    if (still == rank && (lost || interrupted || now >= deadline)) {
      roster.disarm();
      return failure(lost          ? FailureKind::kPeerGone
                     : interrupted ? FailureKind::kStaleView
                                   : FailureKind::kDeadline,
                     roster.rank(), rank, count, began);
    }
    rank = still;
    if (rank < 0) break;
    if (now - began < spin) {
      for (int turn = 0; turn < kTurns && rank >= 0; ++turn) {
        spin_pause();
        rank = missing();
      }
    } else if (!roster.armed()) {
      roster.arm();
    } else {
      roster.sleep(deadline, now);
    }
  }
  roster.disarm();
  return {};
}

Status ShmBarrier::wait_for(int rank, uint64_t count, Instant deadline) {
  const auto missing = [&] { return lines_[rank].count.load() < count ? rank : -1; };
  return wait_for_ranks(roster_, missing, spin_, count, deadline);
}

Status ShmBarrier::wait_for_all(uint64_t count, Instant deadline) {
  int rank = 0;  // those before it are here
  const auto missing = [&] {
    while (rank < roster_.world() && lines_[rank].count.load() >= count) ++rank;
    return rank < roster_.world() ? rank : -1;
  };
  return wait_for_ranks(roster_, missing, spin_, count, deadline);
}

Status ShmBarrier::pass(Instant deadline) { return wait_for_all(arrive(), deadline); }

}  // namespace starling
