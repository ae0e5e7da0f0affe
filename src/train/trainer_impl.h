// What a Trainer is inside: the state, and an executor for the shards and micro-batch of the last
// fit. trainer.cc has what is done with a model, fit.cc has the loop of training.
#pragma once

#include <memory>

#include "cluster/world.h"
#include "engine/executor.h"
#include "starling/trainer.h"
#include "train/state.h"

namespace starling {

// In the state that is given to newcomers.
inline constexpr const char* kLeaseShards = "lease_shards";

class Trainer::Impl {
 public:
  Impl(Model model, TrainerOptions options);

  // Of a batch of this size: part of the job's numbers.
  int shards_of(uint64_t batch) const;
  // Where workers train apart, of what one is lent: it is cut for the lanes only. Where statistics
  // are of a shard (batch_norm) shards are as large as those of a batch would be, by the number of
  // workers at the beginning: those who join do as the others.
  int shards_of_lease(uint64_t batch);
  // The executor for batches of this size, or for such a lease; made when it is first needed or the
  // shards change.
  Executor& executor_for(uint64_t batch);
  std::unique_ptr<Executor> make_executor(int shards) const;
  // The executor there is, whatever its shards: for evaluation.
  Executor& any_executor();
  // The weights were changed from outside: their packed copies are stale.
  void weights_changed() { stale_ = true; }

  // Throws Error when the samples don't fit the model or the loss; `role` is "training" or the
  // like.
  void check_data(const data::Dataset& dataset, const char* role) const;
  std::vector<std::string> metric_names() const;
  Evaluation evaluate(const data::Dataset& dataset);
  World& world() const { return options.cluster.world(); }

  Model model;
  TrainerOptions options;
  TrainState state;
  FitSummary summary;
  uint32_t epochs_done = 0;  // by earlier calls of fit

 private:
  Executor& fresh();
  Sums evaluate_chunks(const data::Dataset& dataset);

  struct LeaseShards {
    uint64_t batch = 0;
    int shards = 0;
  } lease_shards_;  // once chosen
  std::unique_ptr<Executor> executor_;
  bool stale_ = false;
};

// Reads rows of `dataset` for the executor's lanes. The data set outlives the reader.
RowReader reader_of(const data::Dataset& dataset);

}  // namespace starling
