// `single`: one worker, no exchange. The baseline, and what a run without workers uses.
#pragma once

#include <vector>

#include "engine/executor.h"
#include "strategy/merge_cache.h"
#include "strategy/strategy.h"

namespace starling {

class SingleStrategy final : public Strategy {
 public:
  // The executor outlives it.
  SingleStrategy(Executor& executor, const ParameterSpace& space);
  ~SingleStrategy() override;

  const char* name() const override { return "single"; }
  int rank() const override { return 0; }
  int workers() const override { return 1; }
  ShardRange shards() const override { return {0, executor_.options().shards}; }
  Status exchange(const StepSize& step, Wishes& wishes) override;
  GradientParts parts() const override { return parts_; }
  BlockRange blocks() const override { return {0, blocks_}; }
  bool moves_statistics() const override { return true; }
  Status share(std::span<double>) override { return {}; }
  std::span<float* const> weight_copies() const override { return copies_; }
  Status commit(bool&) override { return {}; }
  uint64_t bytes_moved() const override { return 0; }
  Seconds seconds() const override { return {}; }

 private:
  Executor& executor_;
  const size_t blocks_;
  MergeCache merges_;
  GradientParts parts_;
  std::vector<Buffer<float>> late_areas_;
  std::vector<Buffer<float>> copy_memory_;
  std::vector<float*> copies_;  // of the weights, for each lane; or none
};

}  // namespace starling
