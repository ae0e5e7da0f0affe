// LocalSteps: a worker that trains by itself for a while, with an optimizer of its own: on the
// samples of a lease, which are cut into steps of about equal size, and with the weights where the
// executor computes. One thread, beside the executor's lanes.
#pragma once

#include "base/function_ref.h"
#include "train/lease_step.h"

namespace starling {

class LocalSteps {
 public:
  struct Options {
    uint64_t batch = 1;        // samples of a step of the schedule, of all workers
    uint64_t parts = 1;        // a step of one of them has one of so many parts of it
    uint64_t total_steps = 1;  // of the schedule
    bool resets = false;       // the optimizer forgets all at the beginning of each lease
    uint64_t step = 0;         // of the optimizer, after `trained` samples of the run
    uint64_t trained = 0;
    // Does the work of a step.
    std::function<void(FunctionRef<void()>)> compute = [](FunctionRef<void()> work) { work(); };
    // Asked after each step; false: what is done is of no use any more.
    std::function<bool()> goes_on = [] { return true; };
  };
  // All outlive it. The optimizer's state is that of `state`, whole.
  LocalSteps(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy,
             const Options& options);

  // Changes the weights of the seat. The result is without the change; if it is not finite, all but
  // the weights is as it was before.
  LeaseWork::Result run(const LeaseWork::Work& work, const RowReader& reader);
  void prepare(size_t samples);
  // Optimizer and running statistics are as they were before the last run().
  void take_back();

 private:
  // Everything that a lease changes, but the weights.
  struct Kept {
    std::vector<float> statistics;
    std::vector<std::vector<float>> optimizer;  // by kind
  };

  size_t steps_of(size_t samples) const;
  // Whether it counts: all was finite.
  bool make_step(const LeaseWork::Work& work, const RowReader& reader, double rate, uint64_t step,
                 std::span<float> weights);
  void keep();
  void update(std::span<float> weights, std::span<const float> gradient, double rate,
              uint64_t step);

  Executor& executor_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  const Options options_;
  LeaseStep step_;
  Kept before_;
  Sums sums_;
  SampleHash computed_;
};

}  // namespace starling
