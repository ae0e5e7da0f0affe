// LocalSteps: a worker that trains by itself for a while, with an optimizer of its own, and hands
// in how far it has come: weights before less weights after. The samples of a lease are cut into
// steps of about equal size.
#pragma once

#include "train/lease_step.h"

namespace starling {

class LocalSteps final : public LeaseWork {
 public:
  struct Options {
    uint64_t batch = 1;        // samples of a step of the schedule, of all workers
    uint64_t workers = 1;      // a step of one of them has their part of it
    uint64_t total_steps = 1;  // of the schedule
    bool resets = false;       // the optimizer forgets all at the beginning of each lease
  };
  // All outlive it. The optimizer's state is that of `state`, whole.
  LocalSteps(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy,
             const Options& options);

  Result run(const Work& work, const RowReader& reader) override;
  void prepare(size_t samples) override;
  void take_back(size_t leases) override;

  // At the beginning of a lease they are those of its seat.
  void agreed(std::span<const float> weights) override;
  Disagreement disagreement() const override { return disagreement_; }

 private:
  // Everything that a lease changes, but the weights.
  struct Kept {
    std::vector<float> statistics;
    std::vector<std::vector<float>> optimizer;  // by kind
  };

  size_t steps_of(size_t samples) const;
  void begin(const Seat& seat);
  void update(std::span<float> weights, std::span<const float> gradient, double rate,
              uint64_t step);
  // Calls work(first, last) with blocks, on all lanes.
  void for_blocks(FunctionRef<void(size_t first, size_t last)> work);

  Executor& executor_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const Options options_;
  LeaseStep step_;
  Kept before_;  // the last lease
  Buffer<float> base_;
  std::span<const float> change_;  // of the last lease; none: there was none, or it was agreed on
  Sums sums_;
  Disagreement disagreement_;
};

}  // namespace starling
