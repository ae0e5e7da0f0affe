// TrainStep: one step of training: the gradient of this worker's shards on all lanes, batch by
// batch of the step, the exchange with the other workers, then the update, whose blocks workers and
// their lanes share. A step whose loss or gradient is not finite changes nothing, whatever is done
// about it.
//
// To know that a gradient is finite before the first block changes, without reading it twice, the
// step asks the processor: arithmetic that makes an infinity or a NaN of finite numbers raises a
// flag (Lanes::raised), which workers tell one another with their sums. Data are finite, and a
// weight that is not shows in the loss, or raises a flag where an operator absorbs it (0 · ∞). The
// gradient is looked through first only when a flag is up, there are products that raise
// none (in bf16: raises_flags() in engine/plan.h), or the run goes on after a bad step. Two cases
// escape the flags: finite gradients of shards whose sum overflows, and a user's operator that
// stores an infinity without computing it. Then blocks before it have changed, and the error says
// so.
#pragma once

#include <vector>

#include "engine/executor.h"
#include "optim/update.h"
#include "starling/trainer.h"
#include "strategy/strategy.h"
#include "train/state.h"

namespace starling {

class TrainStep {
 public:
  // All outlive it.
  TrainStep(Executor& executor, Strategy& strategy, TrainState& state, const Optimizer& optimizer,
            NonFinite policy);

  struct Result {
    const Sums* sums;  // of all batches
    bool applied;      // false: nothing has changed, because a number was not finite
    Wishes wishes;     // of all workers
  };
  // The gradient of the next batch of the step. What it points to stays until the next call, and
  // the reader of a step of several batches until finish() has returned.
  void add(const BatchRows& batch);
  // Before finish(): how long this worker took for its shards, in all batches of the step.
  void took(double seconds) {
    if (const ShardRange own = strategy_.shards(); own.size() > 0)
      executor_.board().set_seconds(own.begin, seconds);
  }
  // After all batches of the step. `wishes` are this worker's. Throws Error naming step and layer
  // when a number is not finite and the policy is to stop, and when another worker is lost.
  Result finish(double rate, const Wishes& wishes);

  // After finish() has thrown LostWorker: whether this worker can complete the step without those
  // of these ranks, if it is announced.
  bool can_complete(std::span<const int> lost) const;
  // The step is to be completed by the workers that are left: finish() goes on from where it
  // failed.
  void complete_here();
  // What each worker took for its shards in the step, at the first of them.
  std::span<const double> shard_seconds() const { return shard_seconds_; }
  // The samples of the step, batch by batch.
  std::span<const uint64_t> samples() const { return ids_; }
  // A step of one batch.
  Result run(const BatchRows& batch, double rate, const Wishes& wishes) {
    add(batch);
    return finish(rate, wishes);
  }

 private:
  // Sums the gradient's blocks of this worker into the first part, and returns the norm of the
  // whole.
  double sum_gradients();
  bool looks_first() const;
  // Returns false when a block's gradient was not finite; `summed`: sum_gradients was called.
  bool update(const UpdateSettings& settings, bool summed);
  // Calls work(lane, index, block, gradient) with the blocks, on all lanes.
  template <typename Work>
  void for_blocks(BlockRange range, const GradientParts& parts, LateGradients* late, Work work);
  // The same with this worker's; `summed`: their gradient lies in the first part.
  template <typename Work>
  void for_own_blocks(bool summed, Work work);
  // Where each has a part of the optimizer state: computes the new weights of this worker's blocks,
  // without changing anything, and gives them to all. Throws if a gradient is not finite.
  void spread_weights(const UpdateSettings& settings, bool summed);
  // Copies the new weights of blocks that others have updated.
  void take_over_weights();
  // Calls write(undo) to update the block, unless that is done; where state is shared, so that
  // others can finish it, else with null.
  template <typename Write>
  void guarded(int lane, size_t block, Write write);
  Result skipped(const Sums& sums);
  Result done(const Sums& sums, bool applied);
  // Throws Error unless the executors of all workers have computed just the samples of the step.
  void check_samples();
  std::span<const uint64_t> batch_samples(int64_t index) const;
  void require(const Status& status) const;
  [[noreturn]] void stop_at_loss();
  // Requires the sums of all blocks.
  [[noreturn]] void stop_at_gradient(const std::string& consequence);

  Executor& executor_;
  Strategy& strategy_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  StepSize size_;
  BatchRows batch_;  // the last that was added
  std::vector<uint64_t> ids_;
  std::vector<double> block_sums_;
  std::vector<double> shard_seconds_;
  // How far finish() has come.
  enum class Stage : uint8_t {
    kAdding,
    kExchanged,
    kSummed,
    kLooked,
    kSpread
  } stage_ = Stage::kAdding;
  bool completing_ = false;
  Wishes wishes_;
};

}  // namespace starling
