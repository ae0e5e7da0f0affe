// Faults: what is to go wrong in a run on purpose, so that one can see what the run does about it:
// workers that die, freeze, get stuck or slow, links that break, a full disk, a damaged checkpoint;
// at a named point of the protocol, in a step, or at a time. docs/faults.md has them all.
//
// A plan is read before the run and never changes; any thread may pass a point.
#pragma once

#include <atomic>
#include <chrono>
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
  kTaken,         // this newcomer has what the donor gave, but has not begun to use it
  kStrategy,      // before the strategy is made
  kGiven,         // this donor has given its state to the newcomers
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
  kWeights,       // before a callback's weights are written
  kResults,       // before the results are written
  // Of the parameter service, where workers train apart:
  kPushed,   // all servers have this worker's gradient, before the conductor is told
  kLend,     // this server is about to give weights to a worker
  kApplied,  // this server has updated one of its slices, but not the other
  kMeet,     // this worker is about to average its weights with another
  kAdded,    // this server has added a change to one of its slices, but not to the other
  kCount,
};
std::string_view name_of(FaultPoint point);

struct Fault {
  using Clock = std::chrono::steady_clock;
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
  std::optional<double> at;  // instead of both: seconds after the launch
  double factor = 1;
  uint64_t steps = 0;  // of those that last: for so many; 0: to the end
  double seconds = 0;  // of those that last and have a time: for so long; 0: to the end
  int peer = -1;

  bool is_meant_for(int name) const { return worker == name || worker == kEveryWorker; }
  bool lasts() const { return action == Action::kSlow || action == Action::kDisk; }
  // Whether it ends the worker at once, wherever it is: at a time that is the launcher's to do.
  bool is_signal() const { return action == Action::kKill || action == Action::kFreeze; }
};

class Faults {
 public:
  Faults() = default;
  // Times count from `launched`.
  explicit Faults(const std::vector<Fault>& plan,
                  Fault::Clock::time_point launched = Fault::Clock::now());

  bool empty() const { return faults_.empty(); }
  // Called when one is about to happen that may cost a worker: it may be the last that this one
  // does.
  void tell_by(std::function<void()> tell) { tell_ = std::move(tell); }
  // Does what faults of that kind are, and returns false if it can't yet: it is tried again at the
  // next point. Null: nobody can now, and those with a time wait.
  using Handler = std::function<bool(const Fault&)>;
  void handle(Fault::Action action, Handler handler);

  // The worker passes the point: what the plan has for it happens, once. What has a time happens at
  // the first point that is passed from then on.
  void pass(int worker, FaultPoint point, uint64_t step) const;
  // How many times as long the worker's computing takes in this step: 1, if nothing slows it.
  double slowness(int worker, uint64_t step) const;

 private:
  struct Armed {
    Fault fault;
    std::shared_ptr<std::atomic<bool>> fired;
  };
  // Of those that last.
  bool is_on(const Fault& fault, uint64_t step) const;
  bool is_due(const Fault& fault, FaultPoint point, uint64_t step) const;
  double seconds_since_launch() const;
  void follow_disk(int worker, uint64_t step) const;

  std::vector<Armed> faults_;
  Fault::Clock::time_point launched_ = {};
  std::function<void()> tell_;
  std::map<Fault::Action, Handler> handlers_;
};

}  // namespace starling
