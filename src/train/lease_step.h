// LeaseStep: the gradient of the samples that a worker was lent, computed by it alone: for workers
// that train apart. Clipping by norm is of this gradient. One thread.
#pragma once

#include <vector>

#include "engine/executor.h"
#include "starling/trainer.h"
#include "strategy/merge_cache.h"
#include "train/state.h"

namespace starling {

class LeaseStep {
 public:
  // All outlive it.
  LeaseStep(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy);

  struct Result {
    std::span<const float> gradient;  // of the whole space; until the next run()
    const Sums* sums;
    bool finite;
  };
  // With the weights as they are now. Throws Error when a number is not finite and the policy is to
  // stop.
  Result run(std::span<const uint64_t> samples, const RowReader& reader, uint32_t epoch);

 private:
  // Sums the stacks into the first, and returns the norm.
  double sum(const StepSize& step);
  void scale(float factor);

  Executor& executor_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  MergeCache merges_;
  std::vector<double> block_sums_;
};

}  // namespace starling
