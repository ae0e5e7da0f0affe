#include "fabric/sim/sim.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "fabric/sim/sim_core.h"

namespace starling {
namespace {

// Threads of which one runs at a time: the one that holds the baton, the run itself or a rank.
class Baton {
 public:
  static constexpr int kRun = -1;
  explicit Baton(int world) : changed_(static_cast<size_t>(world) + 1) {}

  // Gives the baton away, and waits until it comes back.
  void swap(int self, int to) {
    std::unique_lock lock(mutex_);
    holder_ = to;
    at(to).notify_one();
    at(self).wait(lock, [&] { return holder_ == self; });
  }
  void wait(int self) {
    std::unique_lock lock(mutex_);
    at(self).wait(lock, [&] { return holder_ == self; });
  }
  void give(int to) {
    const std::lock_guard lock(mutex_);
    holder_ = to;
    at(to).notify_one();
  }

 private:
  std::condition_variable& at(int who) { return changed_[static_cast<size_t>(who + 1)]; }

  std::mutex mutex_;
  std::vector<std::condition_variable> changed_;
  int holder_ = kRun;
};

}  // namespace

SimWorld::SimWorld(SimOptions options) : core_(std::make_unique<SimCore>(std::move(options))) {}
SimWorld::~SimWorld() = default;

Fabric& SimWorld::fabric(int rank) { return *core_->ranks.at(static_cast<size_t>(rank)).fabric; }
Instant SimWorld::now() const { return core_->now; }
uint64_t SimWorld::trace_hash() const { return core_->trace_hash; }
void SimWorld::kill(int rank) { core_->kill(rank); }
void SimWorld::freeze(int rank, std::chrono::nanoseconds lasts) { core_->freeze(rank, lasts); }

uint64_t SimWorld::operations(int rank) const {
  return core_->ranks.at(static_cast<size_t>(rank)).operations;
}

void SimWorld::drive(FunctionRef<void(int rank)> resume) {
  SimCore& core = *core_;
  for (SimCore::Rank& rank : core.ranks) rank.runnable = true;
  const auto ended = [](const SimCore::Rank& rank) { return rank.dead || rank.done; };
  do {
    // In any order: who runs first when several can is nobody's promise.
    const size_t first = core.random() % core.ranks.size();
    for (size_t i = 0; i < core.ranks.size(); ++i) {
      const size_t index = (first + i) % core.ranks.size();
      SimCore::Rank& rank = core.ranks[index];
      if (!rank.runnable || !core.can_run(rank)) continue;
      rank.runnable = false;
      rank.wake_at = Instant::max();
      ++rank.wake_number;
      resume(static_cast<int>(index));
    }
    if (std::all_of(core.ranks.begin(), core.ranks.end(), ended)) return;
  } while (core.step());
}

SimWorld::Outcome SimWorld::outcome() const {
  Outcome outcome;
  bool all = true;
  for (const SimCore::Rank& rank : core_->ranks) {
    outcome.done.push_back(rank.done);
    outcome.dead.push_back(rank.dead);
    outcome.operations += rank.operations;
    all = all && (rank.done || rank.dead);
  }
  outcome.end = all                   ? Outcome::End::kAllDone
                : core_->has_events() ? Outcome::End::kOutOfTime
                                      : Outcome::End::kStalled;
  return outcome;
}

SimWorld::Outcome SimWorld::run(FunctionRef<bool(int rank)> advance) {
  drive([&](int rank) {
    SimCore::Rank& self = core_->ranks[static_cast<size_t>(rank)];
    try {
      self.done = advance(rank);
    } catch (const SimDeath&) {
    }
    if (self.done) self.fabric->close();
  });
  return outcome();
}

SimWorld::Outcome SimWorld::run_blocking(FunctionRef<void(int rank, Fabric& fabric)> body) {
  const int world = core_->options.world;
  Baton baton(world);
  bool ending = false;
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(world));
  core_->give_way = [&](int rank) {
    baton.swap(rank, Baton::kRun);
    if (ending || core_->ranks[static_cast<size_t>(rank)].dead) throw SimDeath{};
  };
  const auto live = [&](int rank) {
    SimCore::Rank& self = core_->ranks[static_cast<size_t>(rank)];
    baton.wait(rank);
    try {
      if (!ending) body(rank, *self.fabric);
      self.done = !self.dead && !ending;
    } catch (const SimDeath&) {
    } catch (...) {
      thrown[static_cast<size_t>(rank)] = std::current_exception();
      self.done = true;
    }
    self.fabric->close();
    self.left = true;
    baton.give(Baton::kRun);
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(live, rank);
  std::exception_ptr failure;
  try {
    drive([&](int rank) { baton.swap(Baton::kRun, rank); });
  } catch (...) {
    failure = std::current_exception();  // the threads are ended first
  }
  const Outcome result = outcome();
  ending = true;
  for (int rank = 0; rank < world; ++rank) {
    if (!core_->ranks[static_cast<size_t>(rank)].left) baton.swap(Baton::kRun, rank);
  }
  threads.clear();
  core_->give_way = nullptr;
  for (const std::exception_ptr& one : thrown) {
    if (!failure) failure = one;
  }
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace starling
