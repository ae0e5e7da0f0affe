// LeaseStep: the gradient of the samples that a worker was lent. Clipping by norm is of this
// gradient. One thread.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "param/conductor.h"
#include "starling/trainer.h"
#include "strategy/merge_cache.h"
#include "train/lease_work.h"
#include "train/state.h"

namespace starling {

class LeaseStep final : public LeaseWork, private GradientWatch {
 public:
  // All outlive it.
  LeaseStep(Executor& executor, TrainState& state, const Optimizer& optimizer, NonFinite policy);

  static constexpr size_t kTakenBackMost = 1 + kAheadMost;

  // Is told of buckets that are complete before the rest of the gradient is, by any lane; not where
  // gradients are clipped by their norm. None: nobody is.
  struct Early {
    std::span<const Bucket> buckets = {};
    std::function<void(std::span<const float> gradient, size_t bucket)> tell = {};
  };
  void tell_early(Early early) { early_ = std::move(early); }
  // What is handed in is the gradient, of the whole space. Running statistics move by its moments,
  // if it is finite.
  Result run(const Work& work, const RowReader& reader) override;
  void prepare(size_t samples) override { executor_.prepare(static_cast<int64_t>(samples)); }
  // kTakenBackMost at most.
  void take_back(size_t gradients) override;

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
