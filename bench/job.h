// Job: a model of the benchmark on our side, with everything that a bare training step needs: no
// data loading, no callbacks, no metrics, as on the peer's side. With workers, each has one, and
// all make the same calls. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "fixture.h"
#include "server.h"
#include "starling/model.h"
#include "strategy/make_strategy.h"
#include "train/state.h"
#include "train/step.h"

namespace bench {

struct JobOptions {
  std::string model = "cnn";
  uint64_t batch = 64;
  int lanes = 1;
  int shards = 2;
  int64_t micro_batch = 0;  // 0: the default of the model
  starling::Precision precision = starling::Precision::kF32;
  double rate = 1e-6;  // so small that the work stays the same however long it is measured
};

class Job final : public Subject {
 public:
  // Throws Error for a model that is not known. The world outlives the job.
  Job(const JobOptions& options, starling::World& world);

  void step() override { loss_ = step_.run(rows(), options_.rate, {}).sums->loss; }
  double loss() override { return loss_ / static_cast<double>(options_.batch); }
  size_t activation_bytes() override { return executor_.arena_bytes(); }

  // Floating-point operations of the products and convolutions of a step, forward and backward.
  double flops_per_step() const;
  // Weights and optimizer state of one worker.
  size_t state_bytes() const;
  starling::BatchRows rows() const;
  const JobOptions& options() const { return options_; }
  const starling::TrainState& state() const { return state_; }
  starling::Executor& executor() { return executor_; }

 private:
  JobOptions options_;
  Problem problem_;
  starling::Model model_;
  starling::Optimizer optimizer_;
  starling::TrainState state_;
  starling::Executor executor_;
  std::unique_ptr<starling::Strategy> strategy_;
  starling::TrainStep step_;
  std::vector<uint64_t> samples_;
  std::vector<float> features_, labels_;
  double loss_ = 0;
};

}  // namespace bench
