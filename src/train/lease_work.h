// LeaseWork: what a worker that trains apart does with the samples that it was lent, and what it
// hands in for them: a gradient (lease_step.h), or how far it has come by itself (local_steps.h).
// Running statistics and whatever else it keeps move with each lease, and are taken back where that
// was not applied: so they are a function of the log. One thread.
#pragma once

#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/shard_board.h"
#include "strategy/desk.h"

namespace starling {

class LeaseWork {
 public:
  virtual ~LeaseWork() = default;

  struct Work {
    std::vector<uint64_t> samples;
    uint32_t epoch = 0;
    uint64_t trained = 0;  // samples of the run before the lease
    uint64_t version = 0;  // of the weights that came with it
    Seat seat = {};        // where the executor computes
  };
  struct Result {
    std::span<const float> change;  // to be subtracted from the weights; until the next run()
    const Sums* sums;               // of the samples that count
    bool finite;                    // false: it changes nothing
    uint64_t skipped = 0;           // steps within, because a number was not finite
    bool outdone = false;           // it was given up: another has done it
    SampleHash computed = {};       // what it was computed from, whether it counts or not
    // As they are told: loss, metrics, and what they are of.
    std::vector<double> told_sums() const;
  };
  // With the weights as they are now. Throws Error when a number is not finite and the policy is to
  // stop.
  virtual Result run(const Work& work, const RowReader& reader) = 0;
  // Compiles what so many samples need.
  virtual void prepare(size_t samples) = 0;
  // The last so many leases were not applied: all is as it was before them.
  virtual void take_back(size_t leases) = 0;

  // The weights that all have agreed on after the last lease.
  virtual void agreed(std::span<const float> /*weights*/) {}
  // How far this worker had gone from there, of the length of the weights: the sum over its leases,
  // and of how many. None where it goes nowhere by itself.
  struct Disagreement {
    double sum = 0;
    uint64_t count = 0;
  };
  virtual Disagreement disagreement() const { return {}; }
};

}  // namespace starling
