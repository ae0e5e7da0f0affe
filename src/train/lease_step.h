// LeaseStep: the gradient of the samples that a worker was lent, computed by it alone: for workers
// that train apart. Clipping by norm is of this gradient. Running statistics move with each, and
// are taken back where it was not applied: so they are a function of the log. One thread.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "engine/executor.h"
#include "param/conductor.h"
#include "starling/trainer.h"
#include "strategy/merge_cache.h"
#include "train/state.h"

namespace starling {

class LeaseStep final : private GradientWatch {
 public:
  // All outlive it.
  LeaseStep(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy);

  static constexpr size_t kTakenBackMost = 1 + kAheadMost;

  struct Result {
    std::span<const float> gradient;  // of the whole space; until the next run()
    const Sums* sums;
    bool finite;
  };
  // Is told of buckets that are complete before the rest of the gradient is, by any lane; not where
  // gradients are clipped by their norm. None: nobody is.
  struct Early {
    std::span<const Bucket> buckets = {};
    std::function<void(std::span<const float> gradient, size_t bucket)> tell = {};
  };
  void tell_early(Early early) { early_ = std::move(early); }
  struct Work {
    std::vector<uint64_t> samples;
    uint32_t epoch = 0;
  };
  // With the weights as they are now; running statistics move by its moments, if it is finite.
  // Throws Error when a number is not finite and the policy is to stop.
  Result run(const Work& work, const RowReader& reader);
  // The last so many gradients were not applied, kTakenBackMost at most: running statistics are as
  // they were before them.
  void take_back(size_t gradients);

 private:
  std::span<const Bucket> buckets() const override { return early_.buckets; }
  void complete(size_t bucket) override;
  std::span<float> gradient() const;
  // Sums the stacks into the first, at these blocks.
  void sum(size_t first, size_t last);
  void scale(float factor);

  Executor& executor_;
  TrainState& state_;
  const Optimizer& optimizer_;
  const NonFinite policy_;
  std::deque<std::vector<float>> before_;  // running statistics, before each of the last gradients
  Early early_;
  MergeCache merges_;
  const MergePlan* plan_ = nullptr;  // of this run
  std::vector<double> block_sums_;
};

}  // namespace starling
