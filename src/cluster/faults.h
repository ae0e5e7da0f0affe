// Faults: what is to go wrong in a run on purpose, so that one can see what the run does about it:
// a worker that kills or freezes itself, or gets stuck, when it passes a named point of the
// protocol, or computes more slowly for a while. Which points there are is in docs/faults.md.
//
// A plan is read before the run and never changes; any thread may pass a point.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

enum class FaultPoint : uint8_t {
  kStart,         // the worker has met the others for the first time
  kStrategy,      // before the strategy is made
  kSliced,        // the slices of optimizer state are cut, but not taken into use
  kStep,          // before the gradients of a step
  kGradient,      // after them, before they are given to the others
  kSpread,        // new weights are computed, before they are given to the others
  kAnnounced,     // all that the others need of this worker is there
  kUpdate,        // before the update
  kBlock,         // a block is about to be written
  kBlockWritten,  // a block is written, but not marked as done
  kUpdated,       // after this worker's part of the update
  kCommitted,     // the step is over
  kEvaluation,    // before an evaluation
  kCheckpoint,    // a checkpoint is being written
  kLedger,        // before the ledger is told of an epoch
  kResults,       // before the results are written
  kCount,
};
std::string_view name_of(FaultPoint point);

struct Fault {
  enum class Action : uint8_t { kKill, kFreeze, kHang, kSlow };
  static constexpr int kEveryWorker = -1;

  Action action = Action::kKill;
  int worker = 0;
  FaultPoint point = FaultPoint::kStep;
  uint64_t step = 0;  // the first time that the point is passed in this step or later
  // Of kSlow, which has no point: its computing takes so many times as long, from `step` on.
  double factor = 1;
  uint64_t steps = 0;  // for so many; 0: to the end
};

class Faults {
 public:
  Faults() = default;
  explicit Faults(const std::vector<Fault>& plan);

  bool empty() const { return faults_.empty(); }
  // Called when one is about to happen: it may be the last that this worker does.
  void tell_by(std::function<void()> tell) { tell_ = std::move(tell); }
  // The worker passes the point: what the plan has for it happens, once.
  void pass(int worker, FaultPoint point, uint64_t step) const;
  // How many times as long the worker's computing takes in this step: 1, if nothing slows it.
  double slowness(int worker, uint64_t step) const;

 private:
  struct Armed {
    Fault fault;
    std::shared_ptr<std::atomic<bool>> fired;
  };
  std::vector<Armed> faults_;
  std::function<void()> tell_;
};

}  // namespace starling
