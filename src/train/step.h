// TrainStep: one step of training: the gradient of this worker's shards on all lanes, the exchange
// with the other workers, then the update, whose blocks workers and their lanes share. A step whose
// loss or gradient is not finite changes nothing, whether it is skipped or ends the run.
//
// To know that a gradient is finite before the first block changes, without reading it twice, the
// step asks the processor: arithmetic that makes an infinity or a NaN of finite numbers raises a
// flag (Lanes::raised), which workers tell one another with their sums. Data are finite, and a
// weight that is not shows in the loss, or raises a flag where an operator absorbs it (0 · ∞). The
// gradient is looked through first only when a flag is up, the precision is bf16 (rounding raises
// none), or bad steps are to be skipped. Two cases escape the flags: finite gradients of shards
// whose sum overflows, and a user's operator that stores an infinity without computing it. Then
// blocks before it have changed, and the error says so.
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
    const Sums* sums;  // of the whole batch
    bool applied;      // false: skipped, because a number was not finite
    bool stop;         // a worker wants the run to stop
  };
  // `stop` is this worker's wish. Throws Error naming step and layer when a number is not finite
  // and the policy is to stop, and when another worker is lost.
  Result run(const BatchRows& batch, double rate, bool stop);

 private:
  // Sums the gradient's blocks of this worker into the first part, and returns the norm of the
  // whole.
  double sum_gradients();
  // Returns false when a block's gradient was not finite; `summed`: sum_gradients was called.
  bool update(const UpdateSettings& settings, bool summed);
  // Calls work(index, block, gradient) with the blocks of this worker, on all lanes; the gradient
  // is summed already if `summed`.
  template <typename Work>
  void for_blocks(bool summed, Work work);
  Result skipped(const Sums& sums, bool stop);
  // Throws Error unless the executors of all workers have computed just these samples.
  void check_samples(std::span<const uint64_t> ids);
  void require(const Status& status) const;
  [[noreturn]] void stop_at_loss(const BatchRows& batch);
  // Requires the summed gradient in the first part.
  [[noreturn]] void stop_at_gradient(const std::string& consequence);

  Executor& executor_;
  Strategy& strategy_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  std::vector<double> block_sums_;
};

}  // namespace starling
