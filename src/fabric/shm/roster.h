// Roster: who of a world of processes is there, in shared memory: per rank a word that says so, and
// a bell (a futex) on which the rank sleeps when it has nothing to do. A rank that is marked gone
// stays so, and all are woken to see it. Whoever reaps a process marks it; without that, those who
// wait find a dead process by themselves within kCheckEvery, through its pidfd.
//
// The memory is that of a SharedSegment, zero at first, and outlives the roster. mark_gone, gone
// and ring may be called by any process and thread; the rest belongs to the rank's own thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace starling {

class Roster {
 public:
  static constexpr std::chrono::milliseconds kCheckEvery{25};
  static constexpr int kNoRank = -1;  // for a launcher, which only marks

  static size_t bytes(int world);

  // Who makes the fences between a store and a sleeper's last look: those who go to sleep, which
  // costs them microseconds and others nothing; or everybody, for ranks that often sleep. The same
  // for all ranks.
  enum class Fences { kSleepers, kAll };
  Roster(std::span<std::byte> memory, int world, int rank = kNoRank,
         Fences fences = Fences::kSleepers);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }

  // This process is the rank. False if the rank is there already, or marked gone.
  bool enter();
  bool gone(int rank) const { return line(rank).state.load() == kGone; }
  void mark_gone(int rank);

  // After writing to shared memory, with sequential consistency, what the rank waits for; or with
  // release, and fence() between the two.
  void ring(int rank) {
    if (line(rank).waiting.load() != 0) ring_bell(rank);
  }
  void ring_all();
  // Has a store seen by those who sleep, or are about to, before their bell is looked at. It costs
  // nothing: a real fence here would have every store wait for its cache line to come back from the
  // cores that look at it, about 40 ns a meeting. Who goes to sleep has all processors make one
  // instead (membarrier), in arm(); only with kAll, or where the kernel has no such thing, it is
  // made here.
  void fence() const {
    if (sleepers_fence_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      __sync_synchronize();  // not std::atomic_thread_fence: g++ refuses it under tsan
    }
  }

  // To sleep: arm(), look once more at all that is waited for, then sleep(): it returns when the
  // bell was rung since arm(), or at the deadline, or after kCheckEvery, having looked for dead
  // processes.
  void arm();
  bool armed() const { return armed_; }
  void disarm();
  void sleep(Instant deadline, Instant now);
  // For another thread of this rank's process.
  void ring_self() { ring_bell(rank_); }

  // Waits of this rank end when this becomes true and its bell is rung. Null: never.
  void interrupt_by(const std::atomic<bool>* flag) { interrupt_ = flag; }
  bool interrupted() const { return interrupt_ != nullptr && interrupt_->load(); }

  // Which segments the rank has, a bit each.
  void set_segments(uint64_t bits) { line(rank_).segments.store(bits); }
  uint64_t segments(int rank) const { return line(rank).segments.load(std::memory_order_acquire); }

 private:
  enum State : uint32_t { kAbsent = 0, kHere = 1, kGone = 2 };
  // What others read often, and what they write, on lines of their own.
  struct Line {
    alignas(64) std::atomic<uint32_t> state;
    std::atomic<int32_t> process;
    std::atomic<uint64_t> born;  // tells a process from a later one with the same number
    std::atomic<uint64_t> segments;
    alignas(64) std::atomic<uint32_t> bell;
    std::atomic<uint32_t> waiting;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  Line& line(int rank) const { return lines_[rank]; }
  void ring_bell(int rank);
  void find_dead();
  bool is_dead(int rank);

  Line* const lines_;
  const int world_;
  const int rank_;
  const bool sleepers_fence_;  // this process is reached by the sleepers' fences
  const std::atomic<bool>* interrupt_ = nullptr;
  bool armed_ = false;
  uint32_t seen_ = 0;
  Instant last_check_{};
  std::vector<int> pidfds_;  // by rank; −1 until first needed
};

// Short waits burn time instead of sleeping: a futex costs microseconds. With fewer cores than
// ranks that would keep the very rank from running that is waited for.
std::chrono::nanoseconds default_spin(int world);
// One turn of such a wait.
void spin_pause();

}  // namespace starling
