#include "collective/bare_sum.h"

#include <fmt/format.h>
#include <sched.h>

#include "collective/all_reduce_shared.h"

namespace starling {
namespace {

// Turns of spinning between two looks at the clock and at who is gone; and before the core is given
// to others, for worlds that are larger than the machine.
constexpr int kTurns = 4096;

}  // namespace

BareSum::BareSum(Roster& roster, std::span<std::byte> memory, const Placement& placement)
    : roster_(roster), lines_(reinterpret_cast<Line*>(memory.data())), placement_(placement) {}

Status BareSum::meet(Instant deadline) {
  lines_[roster_.rank()].count.store(++count_, std::memory_order_release);
  for (int rank = 0; rank < roster_.world(); ++rank) {
    for (int turn = 0; lines_[rank].count.load(std::memory_order_acquire) < count_; ++turn) {
      if (turn < kTurns) continue;
      turn = 0;
      const bool gone = roster_.gone(rank);
      if (!gone && std::chrono::steady_clock::now() < deadline) {
        sched_yield();
        continue;
      }
      if (lines_[rank].count.load(std::memory_order_acquire) >= count_) break;
      return Failure{gone ? FailureKind::kPeerGone : FailureKind::kDeadline, rank,
                     fmt::format("bare_sum rank={}: peer {} {}", roster_.rank(), rank,
                                 gone ? "is gone" : "has not come in time")};
    }
  }
  return {};
}

Status BareSum::run(std::span<float* const> arrays, size_t length, Instant deadline) {
  if (Status here = meet(deadline); !here) return here;
  const Span share = SharedAllReduce::share_of(length, roster_.world(), roster_.rank());
  if (share.size() > 0) {
    parts_.clear();
    outs_.clear();
    for (float* array : arrays) {
      parts_.push_back(array + share.begin);
      outs_.push_back(array + share.begin);
    }
    placement_.merge().sum(parts_, share.size(), outs_);
  }
  return meet(deadline);
}

}  // namespace starling
