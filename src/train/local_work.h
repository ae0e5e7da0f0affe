// What workers that make steps by themselves do with a lease, and hand in:
//
//   LocalChange    begins with the weights that come with it, and hands in how far it has come:
//                  weights before less weights after (`local_sgd`, `incremental`)
//   ElasticSteps   goes on with weights of its own. Those that come are the centre: a part of the
//                  way to it is gone first, and as long a part from the centre to here is what is
//                  handed in (`elastic_averaging`)
//   GossipSteps    goes on with weights of its own, which it averages with others' between steps
//                  (strategy/meetings.h), and hands in nothing (`gossip`)
#pragma once

#include <memory>
#include <utility>

#include "train/local_steps.h"

namespace starling {

// How far a worker is from the others, lease by lease.
class DisagreementSum {
 public:
  // Of weights a and b, of the length of b. What is not finite is left out.
  void add(std::span<const float> a, std::span<const float> b);
  const LeaseWork::Disagreement& get() const { return sum_; }

 private:
  LeaseWork::Disagreement sum_;
};

class LocalChange final : public LeaseWork {
 public:
  LocalChange(std::unique_ptr<LocalSteps> steps, size_t floats)
      : steps_(std::move(steps)), base_(floats), own_(floats) {}

  Result run(const Work& work, const RowReader& reader) override;
  void prepare(size_t samples) override { steps_->prepare(samples); }
  void take_back(size_t leases) override {
    if (leases > 0) steps_->take_back();
  }
  void agreed(std::span<const float> weights) override;
  Disagreement disagreement() const override { return sum_.get(); }

 private:
  const std::unique_ptr<LocalSteps> steps_;
  Buffer<float> base_, own_;  // weights before and after the last lease
  uint64_t version_ = 0;      // of its weights
  bool is_agreed_ = true;
  DisagreementSum sum_;
};

// A worker's own weights; it has none before its first lease.
struct OwnWeights {
  std::vector<float> now, before;  // the last lease
};

class ElasticSteps final : public LeaseWork {
 public:
  // `own` outlives it; `strength` is the part of the way, in 0 … 1.
  ElasticSteps(std::unique_ptr<LocalSteps> steps, OwnWeights& own, double strength)
      : steps_(std::move(steps)), own_(own), strength_(static_cast<float>(strength)) {}

  Result run(const Work& work, const RowReader& reader) override;
  void prepare(size_t samples) override { steps_->prepare(samples); }
  void take_back(size_t leases) override;
  Disagreement disagreement() const override { return sum_.get(); }

 private:
  const std::unique_ptr<LocalSteps> steps_;
  OwnWeights& own_;
  const float strength_;
  std::vector<float> pull_;
  DisagreementSum sum_;
};

class GossipSteps final : public LeaseWork {
 public:
  // `own` outlives it: the worker's weights after the stretch, and before the last lease.
  GossipSteps(std::unique_ptr<LocalSteps> steps, std::span<float> weights, OwnWeights& own)
      : steps_(std::move(steps)), weights_(weights), own_(own) {}

  Result run(const Work& work, const RowReader& reader) override;
  void prepare(size_t samples) override { steps_->prepare(samples); }
  void take_back(size_t leases) override;
  void agreed(std::span<const float> weights) override;
  Disagreement disagreement() const override { return sum_.get(); }

 private:
  const std::unique_ptr<LocalSteps> steps_;
  const std::span<float> weights_;
  OwnWeights& own_;
  DisagreementSum sum_;
};

}  // namespace starling
