// Strategy: how the workers of a job make one step together. It answers which shards this worker
// computes, where their gradients are summed, who updates which weights, and when the step is done.
// TrainStep calls it in this order, once per step, on every worker:
//
//   shards() → [watch()] → the executor computes them → exchange() → [look(), share()] →
//   [spread()] → close() → begin_update(), update of blocks() → commit()
//
// A failure (a lost worker, a deadline) leaves weights and optimizer state as they were up to
// begin_update(); after that the step may be half done. When the world is made anew after it and
// the step is to be completed (World::Next), complete_here() is called, then again what had failed
// and what comes after it. Otherwise, and for the next step, a new strategy is made. Called by one
// thread.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "cluster/faults.h"
#include "collective/merge_plan.h"
#include "engine/executor.h"

namespace starling {

// The gradient of a batch, as parts that are summed by a plan; each is a flat array of the
// parameter space, or of what is needed of it: from the float `origin` on.
struct GradientParts {
  const MergePlan* plan = nullptr;
  std::span<float* const> at;
  size_t origin = 0;
  // The lane of this worker that has written each part, or kOtherWorker, and will write it again;
  // none: that is of no matter.
  std::span<const int> writers = {};
};
inline constexpr int kOtherWorker = -1;

// Blocks first … last−1 of the parameter space.
struct BlockRange {
  size_t first = 0, last = 0;
};

// What a worker wants to happen after the step; all learn what any of them wants.
struct Wishes {
  bool stop = false;    // the run is to end
  bool change = false;  // other workers are to take part from the next step on
  bool wait = false;    // there are too few workers: before that all is to be saved
  bool save = false;    // a checkpoint is to be written

  void add(const Wishes& other) {
    stop = stop || other.stop;
    change = change || other.change;
    wait = wait || other.wait;
    save = save || other.save;
  }
};

class Ownership;

class Strategy {
 public:
  virtual ~Strategy() = default;

  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int workers() const = 0;

  // The shards of every batch that this worker computes.
  virtual ShardRange shards() const = 0;

  // Before the last batch of a step is computed: who is to be told of its gradient, if anybody. The
  // next call is exchange().
  virtual GradientWatch* watch(const StepSize&) { return nullptr; }
  // This worker's shards are done: waits until those of all are, as far as this worker needs them
  // for its blocks(). Then the board is complete, and `wishes` are those of all.
  virtual Status exchange(const StepSize& step, Wishes& wishes) = 0;
  // After exchange(): the parts; they may be read, and the first of them be written, at blocks().
  virtual GradientParts parts() const = 0;
  // The blocks that this worker sums and updates.
  virtual BlockRange blocks() const = 0;
  // Whether this worker moves the running statistics; else another does it for all.
  virtual bool moves_statistics() const = 0;

  // The gradient is looked at before the update: until share() nobody begins that.
  virtual void look() {}
  // Makes the sums of all blocks known to all; each has filled in those of its blocks.
  virtual Status share(std::span<double> block_sums) = 0;

  // Where each has only some of the optimizer state: who has what. Null: it is whole everywhere.
  // Then the new weights of blocks() are written here first, in the layout of the space, and
  // spread() makes those of all blocks known to all. `finite` is then true only if it was for all.
  virtual const Ownership* ownership() const { return nullptr; }
  virtual float* next_weights() { return nullptr; }
  virtual Status spread(bool& /*finite*/) { return {}; }
  // Copies of the weights, in the layout of the space: whoever updates blocks writes them, too.
  virtual std::span<float* const> weight_copies() const { return {}; }
  // Blocks of another worker whose state this one updates too, and their gradient.
  virtual BlockRange copied_blocks() const { return {}; }
  virtual GradientParts copied_parts() const { return {}; }
  // Waits until all have what they need for the update, unless exchange() has.
  virtual Status close() { return {}; }

  // The step will be completed, by whoever is left.
  virtual void begin_update() {}
  // Waits until the blocks of all are updated. `finite` is then true only if it was for all.
  virtual Status commit(bool& finite) = 0;

  // Whether the workers of these ranks had given all that this one needs, where it waits now. If
  // not, the step is not begun to be updated by anybody. `will_look`: after exchange() they look().
  virtual bool has_parts_of(std::span<const int>, bool /*will_look*/) const { return false; }
  // The step is completed by the workers of the world as it is now: blocks() are others.
  virtual void complete_here() {}

  // Where a fault may be planned (cluster/faults.h).
  virtual void pass(FaultPoint) const {}

  // Bytes of gradients that this worker has sent, or read from memory of the others.
  virtual uint64_t bytes_moved() const = 0;
  // Seconds of exchange(), share() and commit() so far: gradients on their way, and waiting for
  // other workers. Where the two can't be told apart it is all communication. Hidden is the time in
  // which gradients were on their way while the lanes computed: it is in neither of the two.
  struct Seconds {
    double communication = 0, hidden = 0, waiting = 0;

    Seconds& operator+=(const Seconds& other) {
      communication += other.communication;
      hidden += other.hidden;
      waiting += other.waiting;
      return *this;
    }
  };
  virtual Seconds seconds() const = 0;
};

}  // namespace starling
