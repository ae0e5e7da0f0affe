// `sharded`: each worker is the server of one slice of the blocks, and has the optimizer state of
// these alone; the weights are whole on all, since the forward pass reads them. Where some workers
// only serve, only they have slices (`parameter_server`). A step is an all-reduce in two halves
// with the update in between:
//
//   1. buckets of gradients are reduce-scattered, each worker getting the sum of its slice;
//   2. with a replica, the sum goes on to the next worker, which updates its copy of the state;
//   3. each computes the new weights of its slice, where the others' gradients were, and all
//      gather them;
//   4. the step commits, and weights and state change, without a further word.
//
// So up to the commit nothing has changed, and a step is redone; from then on each has all that it
// needs to complete it alone. What a lost worker had of the state is the matter of who makes the
// next strategy (Ownership). Like `all_reduce`, of which it is a kind, otherwise.
#pragma once

#include "strategy/all_reduce_messages.h"
#include "strategy/ownership.h"

namespace starling {

class Sharded final : public AllReduceMessages {
 public:
  struct Options {
    const char* name = "sharded";
    int replicas = 1;
    bool overlap = true;
  };
  // `placement` has the shards of each worker. All but that outlive it.
  Sharded(World& world, Executor& executor, const ParameterSpace& space,
          std::vector<ShardRange> placement, const Options& options);
  ~Sharded() override { abandon(); }

  const char* name() const override { return name_; }
  Status exchange(const StepSize& step, Wishes& wishes) override;
  GradientParts parts() const override { return {&one_part(), {&own_at_, 1}, own_.begin}; }
  BlockRange blocks() const override { return self_ ? owners_.blocks(*self_) : BlockRange{}; }
  Status share(std::span<double> block_sums) override;
  const Ownership* ownership() const override { return &owners_; }
  float* next_weights() override { return sum(); }
  Status spread(bool& finite) override;
  BlockRange copied_blocks() const override;
  GradientParts copied_parts() const override {
    return {&one_part(), {&copied_at_, 1}, copied_.begin};
  }
  Status close() override;

 private:
  Collectives::Handle start(const Bucket& bucket, std::span<const float* const> partials) override;
  // Where the parts of all ranks begin, and the end, from where those of the slices do.
  std::vector<size_t> cuts_by_rank(std::span<const size_t> by_slice) const;

  const char* const name_;
  const Ownership owners_;
  std::vector<int> ring_;             // the ranks that have slices
  const std::optional<size_t> self_;  // this worker's slice
  const Span own_, copied_;
  Buffer<float> own_gradient_, copied_gradient_;
  float* const own_at_;
  float* const copied_at_;
  std::vector<char> finite_;  // by worker
};

}  // namespace starling
