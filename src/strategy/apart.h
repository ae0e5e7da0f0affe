// Apart: the strategy of workers that train by themselves. It only says who keeps which slice of
// the parameter service, or that there is none: what is exchanged, and when, is the matter of
// ParamService, and there are no steps that all make together.
#pragma once

#include "cluster/world.h"
#include "engine/executor.h"
#include "strategy/desk.h"
#include "strategy/ownership.h"
#include "strategy/strategy.h"

namespace starling {

class Apart final : public Strategy {
 public:
  // All outlive it. All workers make it at the same time, within a unit. `desk` is this worker's:
  // the executor computes there.
  Apart(std::string name, World& world, Executor& executor, Ownership owners, Desk& desk);
  ~Apart() override;

  const char* name() const override { return name_.c_str(); }
  int rank() const override { return rank_; }
  int workers() const override { return workers_; }
  ShardRange shards() const override { return {0, executor_.options().shards}; }
  const Ownership* ownership() const override { return &owners_; }
  // Of all workers; none where each sees only its own.
  const Desks& desks() const { return desks_; }
  // The executor computes at that seat from now on.
  void sit(size_t seat);

  // There are no steps.
  Status exchange(const StepSize&, Wishes&) override { return {}; }
  GradientParts parts() const override { return {}; }
  BlockRange blocks() const override { return {}; }
  bool moves_statistics() const override { return false; }
  Status share(std::span<double>) override { return {}; }
  Status commit(bool&) override { return {}; }

  // What was read and written at the desks of others.
  void add_bytes_moved(uint64_t bytes) { bytes_moved_ += bytes; }
  uint64_t bytes_moved() const override;
  Seconds seconds() const override { return {}; }

 private:
  const std::string name_;
  Fabric& fabric_;
  const uint64_t sent_before_;  // bytes, by strategies before this one
  Executor& executor_;
  Desk& desk_;
  const int rank_, workers_;
  const Ownership owners_;
  Desks desks_;
  uint64_t bytes_moved_ = 0;
};

}  // namespace starling
