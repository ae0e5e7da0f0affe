// StretchReplay: what workers that train apart did in one stretch (param/record.h), done again by
// one process. A worker's gradient is computed with the weights that it had been lent, at some
// moment between that and its update; when is drawn from a seed, so that two replays of one record
// compute in different orders, and can have the same bits only if the record says all that matters.
//
// One thread, beside the executor's lanes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "param/kept_slice.h"
#include "param/record.h"
#include "param/update_plan.h"
#include "train/lease_step.h"

namespace starling {

// The mean, element by element, in the order of `parts`: of what workers have each of their own.
void mean_of(std::span<const std::span<const float>> parts, std::span<float> mean);

class StretchReplay {
 public:
  struct Options {
    const RowReader* reader = nullptr;
    std::function<std::vector<uint64_t>(SampleRange places)> samples_at;
    UpdateRules rules;
    uint64_t samples = 0;  // of the run, before
    uint64_t timing_seed = 1;
    // Told of every order, when it is obeyed; pushes have their sums.
    std::function<void(const Order&)> obeyed;
  };
  // At the beginning of the stretch. All outlive it.
  StretchReplay(Executor& executor, TrainState& state, const Options& options);

  // Requires that the orders can be obeyed (RecordReader sees to that). Weights, optimizer state
  // and running statistics are then those at its end.
  void run(const RecordedStretch& stretch);

 private:
  struct Lease {
    SampleRange samples;
    std::vector<float> weights;
    bool computed = false;  // then there are
    std::vector<float> gradient, statistics;
    std::vector<double> sums;
    uint64_t hash = 0;  // of the samples
  };
  struct Worker {
    std::vector<float> statistics;  // after the gradients that were applied
    std::deque<Lease> leases;       // in the order in which they are computed
  };

  void obey(Order order);
  void apply(Order& order);
  // Some of what is lent and not computed, or none of it.
  void compute_some();
  // The first of its leases that is not.
  void compute(Worker& worker);
  uint64_t draw(uint64_t below);
  Worker& worker(int name);

  Executor& executor_;
  TrainState& state_;
  const Options& options_;
  LeaseStep step_;
  KeptSlice slice_;  // all parameters
  const std::vector<float> first_statistics_;
  std::map<int, Worker> workers_;  // by name
  uint32_t epoch_ = 0;
  uint64_t version_ = 0, samples_ = 0, draws_ = 0;
};

}  // namespace starling
