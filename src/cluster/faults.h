// Faults: what is to go wrong in a run on purpose, so that one can see what the run does about it:
// workers that die, freeze, get stuck or slow, links that break, a full disk, a damaged checkpoint;
// at a named point of the protocol, in a step, or at a time. docs/faults.md has them all.
//
// A plan is read before the run and never changes; any thread may pass a point.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
  kRecord,        // a stretch is recorded, but the others do not know it yet
  kResults,       // before the results are written
  // Of the parameter service, where workers train apart:
  kPushed,   // all servers have this worker's gradient, before the conductor is told
  kLend,     // this server is about to give weights to a worker
  kApplied,  // this server has updated one of its slices, but not the other
  kCount,
};
std::string_view name_of(FaultPoint point);

struct Fault {
  enum class Action : uint8_t {
    kKill,
    kFreeze,
    kHang,     // alive, but stuck
    kSlow,     // computing takes `factor` times as long
    kLink,     // the connection to `peer` breaks
    kDisk,     // no file can be written
    kCorrupt,  // the newest checkpoint is damaged, by the chief
  };
  static constexpr int kEveryWorker = -1;

  Action action = Action::kKill;
  int worker = 0;
  FaultPoint point = FaultPoint::kStep;
  uint64_t step = 0;         // the first time that the point is passed in this step or later
  std::optional<double> at;  // instead of both: seconds after the launch, by the launcher
  double factor = 1;
  uint64_t steps = 0;  // of kSlow and kDisk: for so many; 0: to the end
  int peer = -1;

  bool is_meant_for(int name) const { return worker == name || worker == kEveryWorker; }
  // Of those that last.
  bool is_on(uint64_t now) const { return now >= step && (steps == 0 || now - step < steps); }
};

class Faults {
 public:
  Faults() = default;
  explicit Faults(const std::vector<Fault>& plan);

  bool empty() const { return faults_.empty(); }
  // Called when one is about to happen: it may be the last that this worker does.
  void tell_by(std::function<void()> tell) { tell_ = std::move(tell); }
  // Does what faults of that kind are.
  void handle(Fault::Action action, std::function<void(const Fault&)> handler);

  // The worker passes the point: what the plan has for it happens, once.
  void pass(int worker, FaultPoint point, uint64_t step) const;
  // How many times as long the worker's computing takes in this step: 1, if nothing slows it.
  double slowness(int worker, uint64_t step) const;

 private:
  struct Armed {
    Fault fault;
    std::shared_ptr<std::atomic<bool>> fired;
  };
  void follow_disk(int worker, uint64_t step) const;

  std::vector<Armed> faults_;
  std::function<void()> tell_;
  std::map<Fault::Action, std::function<void(const Fault&)>> handlers_;
};

}  // namespace starling
