// TrainState: everything that training changes and a checkpoint keeps: weights, optimizer state,
// running statistics and the number of steps. All in flat arrays with one layout. No threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cluster/world.h"
#include "engine/moments_layout.h"
#include "graph/graph.h"
#include "starling/optimizer.h"
#include "strategy/desk.h"
#include "strategy/ownership.h"
#include "tensor/buffer.h"
#include "tensor/parameter_space.h"
#include "train/optimizer_state.h"
#include "train/safetensors.h"
#include "train/update_journal.h"

namespace starling {

struct Snapshot;

struct TrainState {
  // Weights are drawn by `seed`; the rest is zero. On workers that share memory there is one state:
  // the chief draws the weights, and nobody goes on before that.
  TrainState(const Graph& graph, const Optimizer& optimizer, uint64_t seed);
  struct Options {
    int lanes = 1;
    bool splits_optimizer = false;  // each worker has a part of it: none before split()
    size_t seats = 0;               // of the desk, where workers train apart
    bool has_outer = false;         // the mean of their changes has a velocity
  };
  TrainState(const Graph& graph, const Optimizer& optimizer, uint64_t seed, World& world,
             const Options& options);

  ~TrainState();

  // Weights or optimizer state by parameter name, and running statistics by layer name.
  std::vector<NamedTensor> weight_tensors() const;
  std::vector<NamedTensor> optimizer_tensors(const OptimizerState& whole) const;
  std::vector<NamedTensor> statistics_tensors() const;
  // Throw Error, and change nothing, when a name is missing or unknown or a shape differs. Of a
  // whole optimizer state this worker's part is taken.
  void load_weights(const std::vector<NamedTensor>& tensors);
  void load_optimizer(const std::vector<NamedTensor>& tensors);
  void load_statistics(const std::vector<NamedTensor>& tensors);

  // Where the state of workers that share memory lies, for one that joins them.
  struct SharedPlace {
    int64_t process = 0, descriptor = -1;
    uint64_t slots = 0;  // of the journal
  };
  std::optional<SharedPlace> shared_place() const;

  bool splits_optimizer() const { return options_.splits_optimizer; }
  // Who has which part of the optimizer state, and this worker's. Of nobody: it is zero.
  const Ownership& owners() const { return owners_; }
  void split(const Ownership& owners, OptimizerState own);

  // Where this worker computes, if it trains apart: the weights are those of the first seat.
  Desk* desk() { return desk_ ? &*desk_ : nullptr; }

  // Null where no other could finish an update of this state.
  UpdateJournal* journal() { return journal_ ? &*journal_ : nullptr; }

  OptimizerKind optimizer_kind;
  ParameterSpace space;
  MomentsLayout moments;
  Buffer<float> weights;
  OptimizerState optimizer;
  Buffer<float> statistics;
  Buffer<float> outer;              // the velocity of an outer optimizer, if there is one
  uint64_t step = 0;                // updates done
  uint64_t skipped = 0;             // steps that gave no update, because a number was not finite
  std::unique_ptr<Snapshot> given;  // by the others, to a worker that joined: for the next fit

 private:
  // What memory of the state depends on, a line each.
  std::string layout_text() const;
  void make(World& world);
  void join(World& world);
  void lay_out(const World& world, std::optional<SharedSegment> segment);
  void draw_weights(uint64_t seed);

  const Options options_;
  Ownership owners_;
  std::optional<SharedSegment> shared_;
  std::optional<Desk> desk_;
  std::optional<UpdateJournal> journal_;
  size_t slots_ = 0;
};

// The flat layout of a graph's parameters: in the order in which the backward pass finishes them.
ParameterSpace parameter_space(const Graph& graph);

}  // namespace starling
