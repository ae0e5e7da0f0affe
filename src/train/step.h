// TrainStep: one step of training on one worker: the gradient of a batch on all lanes, then the
// update, whose blocks the lanes share. A step whose loss or gradient is not finite changes nothing
// when the policy is to skip it; when it is to stop, training ends with an error before anything is
// saved.
#pragma once

#include <vector>

#include "engine/executor.h"
#include "optim/update.h"
#include "starling/trainer.h"
#include "train/state.h"

namespace starling {

class TrainStep {
 public:
  TrainStep(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy);

  struct Result {
    const Sums* sums;
    bool applied;  // false: skipped, because a number was not finite
  };
  // Throws Error naming step and layer when a number is not finite and the policy is to stop.
  Result run(const BatchRows& batch, double rate);

 private:
  // Sums the shards' gradients into the first one and returns the norm of the sum.
  double sum_gradients();
  // Returns false when a block's gradient was not finite.
  bool update(const UpdateSettings& settings, std::span<const float* const> gradients);
  // Calls work(first, last) with a lane's blocks, on every lane.
  template <typename Work>
  void for_blocks(Work work);
  [[noreturn]] void stop_at_loss(const BatchRows& batch);
  // Requires the summed gradient in the executor's first one.
  [[noreturn]] void stop_at_gradient();

  Executor& executor_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  std::vector<double> block_sums_;
};

}  // namespace starling
