// Cluster: the workers that train together, as a program sees them. Programs started by
// `starling launch -n 4 -- ./my_program` are its workers and need one line:
//
//   Trainer trainer(model, {.loss = …, .cluster = Cluster::from_environment()});
//
// Every worker then makes the same calls with the same arguments; fit() and evaluate() share the
// work and give all of them the same results, bit for bit those of one worker. Files are written by
// worker 0, the chief; on one host all share one copy of the weights, so only the chief may change
// them between steps. Started by hand, a program is a cluster of one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace starling {

class World;

// Which shards of a batch a worker computes.
enum class Balance : uint8_t {
  kEven,   // as many as the others
  kSpeed,  // as many as its speed allows, as it is measured in the steps before
};

// How workers train together.
struct StrategyOptions {
  // "single", "all_reduce", "sharded", "parameter_server", "local_sgd", "elastic_averaging",
  // "incremental" or "gossip"; empty: by the number of workers
  std::string name = {};
  bool exact = true;    // false: sums over workers may leave the shard tree where that is faster
  bool overlap = true;  // over tcp: gradients leave while the rest of them is computed
  int replicas = 1;     // of "sharded": copies of each worker's optimizer state on another, 0 or 1
  // Of "parameter_server": when gradients are applied, "sync", "async", "ssp" or "backup".
  std::string consistency = "sync";
  int staleness = 3;  // of "ssp": by how many gradients a worker may be ahead of the slowest
  int backup = 1;     // of "backup": how many gradients a round does not wait for
  // Of those three: who gets which samples, "dynamic", "equal" or "weighted"; how much less a
  // gradient counts for each update that its weights had missed; and whether momentum is lowered
  // for workers that don't wait for each other.
  std::string partition = "dynamic";
  int ahead = 0;  // of "async" and "ssp": leases that come while a worker computes
  double damping = 0;
  bool adjust_momentum = true;
  // Of the last four: steps that workers make by themselves before they agree.
  uint64_t period = 16;
  // Of "local_sgd" and "incremental": what the mean of their changes is made by, "average" or
  // "nesterov"; and what becomes of their optimizers' state then, "kept", "averaged" or "reset".
  std::string outer = "average";
  std::string local_state = "kept";
  uint64_t post_local_after = 0;  // epochs in which they agree on every step first
  std::string match = "random";   // of "gossip": who meets whom, "random" or "ring"
  uint64_t tasks = 0;  // of "incremental": what a round is cut into; 0: one for each worker
  double beta = 0.9;   // of "elastic_averaging": how strongly all workers together pull the centre
  Balance balance = Balance::kEven;
  uint64_t min_workers = 1;  // with fewer, the others save and wait for some to join
  uint64_t check_every = 0;  // steps between two comparisons of all workers' weights; 0: never
};

// Whether workers go on by themselves, through the parameter service; and whether they make steps
// then, and hand in how far they have come, not gradients.
bool trains_apart(const StrategyOptions& options);
bool makes_local_steps(const StrategyOptions& options);

class Cluster {
 public:
  // This process alone.
  Cluster();
  // As the launcher that started this process has placed it. Throws Error when it can't be reached.
  static Cluster from_environment();

  int rank() const;
  int workers() const;
  bool is_chief() const { return rank() == 0; }

  // For the library.
  explicit Cluster(std::shared_ptr<World> world);
  World& world() const { return *world_; }

 private:
  std::shared_ptr<World> world_;
};

}  // namespace starling
