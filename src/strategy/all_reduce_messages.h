// `all_reduce` of workers that share no memory: each has its own weights and optimizer state, and
// makes the whole update itself, from the same summed gradient. A worker sums its stacks to the
// fewest subtrees of the shard tree, and buckets of them are reduced by messages, several at a time
// (collective/). Rows of the board, and the wish to stop, go along.
//
// With `overlap` a bucket is on its way as soon as the backward passes of all of this worker's
// stacks have completed it, which is in the last micro-batch of each stack, in the last batch of
// the step. The lane that completes it sums it; a thread in the background does the rest, and has
// the fabric from watch() to exchange(). A peer that is lost meanwhile is the failure of
// exchange().
//
// `sharded` (sharded.h) is a kind of it, with other ways of buckets and a later commit.
#pragma once

#include <atomic>

#include "cluster/world.h"
#include "collective/collectives.h"
#include "engine/executor.h"
#include "strategy/background_lane.h"
#include "strategy/merge_cache.h"
#include "strategy/strategy.h"

namespace starling {

struct AllReduceMessagesOptions {
  bool exact = true;    // sums keep the tree
  bool overlap = true;  // with the backward pass
  LinkCosts costs;      // of messages
};

class AllReduceMessages : public Strategy, private GradientWatch {
 public:
  // `placement` has the shards of each worker. All but that outlive it.
  AllReduceMessages(World& world, Executor& executor, const ParameterSpace& space,
                    std::vector<ShardRange> placement, const AllReduceMessagesOptions& options);
  ~AllReduceMessages() override;

  const char* name() const override { return "all_reduce"; }
  int rank() const override { return rank_; }
  int workers() const override { return workers_; }
  ShardRange shards() const override { return merges_.placement()[static_cast<size_t>(rank())]; }
  GradientWatch* watch(const StepSize& step) override;
  Status exchange(const StepSize& step, Wishes& wishes) override;
  GradientParts parts() const override { return {&one_, {&sum_, 1}}; }
  BlockRange blocks() const override { return {0, space_.blocks().size()}; }
  bool moves_statistics() const override { return true; }
  Status share(std::span<double>) override { return {}; }
  void begin_update() override { world_.begin_completion(); }
  Status commit(bool&) override { return world_.complete(); }
  bool has_parts_of(std::span<const int>, bool) const override { return true; }
  void pass(FaultPoint point) const override { world_.pass(point); }
  uint64_t bytes_moved() const override;
  Seconds seconds() const override { return seconds_; }

  // How many buckets have begun their way, in all steps so far. From any thread.
  uint64_t buckets_begun() const { return begun_.load(std::memory_order_acquire); }

 protected:
  // Begins the way of a bucket, whose partials are these; in the thread that reduces.
  virtual Collectives::Handle start(const Bucket& bucket, std::span<const float* const> partials);
  // exchange() without the commit.
  Status reduce_and_gather(const StepSize& step, Wishes& wishes);
  // All that this worker needs is here: it may complete the step alone. Who hears this from all
  // begins the update.
  Status announce(const Wishes& wishes);
  // True, once, when the step was announced in another view: it is being completed.
  bool was_announced(Wishes& wishes);
  // Ends what is under way in the background, by a step that has thrown: before what start() uses
  // is gone.
  void abandon();
  // Counts as communication.
  Status wait_for(std::initializer_list<Collectives::Handle> handles);

  Collectives& collectives() { return collectives_; }
  const ParameterSpace& space() const { return space_; }
  // Of the whole space: the sum, and before it is made whatever there is.
  float* sum() { return sum_; }
  const MergePlan& one_part() const { return one_; }

 private:
  // What is the same for every step of one size.
  struct Layout {
    StepSize step;
    std::shared_ptr<const Placement> placement;
    std::vector<MergePlan> plans;     // of this worker's partials, over its stacks
    std::vector<size_t> first_stack;  // of each partial, and the end
  };
  // When gradients were on their way.
  struct Flight {
    Instant begin, end;
  };

  std::span<const Bucket> buckets() const override { return buckets_; }
  void complete(size_t bucket) override;

  const Layout& layout_of(const StepSize& step);
  void begin(const StepSize& step);
  // Floats offset … offset + size − 1 of this worker's stacks become those of its partials.
  void sum_stacks(size_t offset, size_t size);
  void sum_what_is_left();
  // Exchanges buckets in their order as they become ready, until all are done or one fails.
  Status reduce();
  Status gather_board(Wishes& wishes);

  World& world_;
  const int rank_, workers_;  // in the world for which this was made
  Fabric& fabric_;
  const uint64_t sent_before_;  // bytes, by strategies before this one
  Executor& executor_;
  const ParameterSpace& space_;
  MergeCache merges_;
  Collectives collectives_;
  const MergePlan one_{{{0, 1}}};
  const std::vector<Bucket> buckets_;
  std::list<Layout> layouts_;
  Buffer<float> nothing_;       // the sum of a worker that had no shard
  std::vector<Wishes> wishes_;  // by worker

  // Of the step under way. `ready_` and `abandoned_` are for the thread that reduces, which has the
  // fabric, the collectives and `flights_` until it is done.
  const Layout* layout_ = nullptr;
  std::vector<const float*> partials_;
  float* sum_ = nullptr;
  std::vector<std::atomic<bool>> ready_;  // by bucket
  std::atomic<bool> abandoned_{false};
  std::atomic<uint64_t> begun_{0};
  std::vector<Flight> flights_;
  Status reduced_;
  std::optional<Wishes> announced_;  // and what all want
  bool in_background_ = false;
  Seconds seconds_;
  std::optional<BackgroundLane> background_;
};

}  // namespace starling
