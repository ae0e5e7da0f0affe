// plan_update: what one update of the parameter service does, from the pushes that make it and what
// was before them. Nothing else counts: no clock, no member, no order in which things came. So all
// who have the log of orders make the same updates, then or later.
//
// The rate is the schedule's after so many samples, times the usual update's part of a batch, for
// Adam and AdamW its root. So an epoch of many small updates moves the weights about as far as one
// of whole batches. An update of n samples counts as n / usual of a usual one: the rate is as many
// times larger, and moments and velocity go on by as much: β to that power, and the gradient counts
// as often. So the noise of a slow worker's small gradients does not drown the others'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/update.h"
#include "param/conductor.h"

namespace starling {

struct UpdateRules {
  Optimizer optimizer;
  uint64_t batch = 1;        // samples of a step of the schedule
  double usual = 1;          // samples of an update, if all workers are equally fast
  uint64_t total_steps = 1;  // of the run
  // What is handed in are not gradients, but how far workers have come: an update is one of the
  // optimizer with its rate, whatever its samples.
  bool whole = false;
  // Gradients of so many workers that don't wait for one another act like momentum: the optimizer's
  // own is lowered for it (docs/parameter_service.md). 1: it is as it is.
  size_t apart = 1;
  // By staleness: a gradient whose weights had missed m updates counts 1 / (1 + damping · m).
  double damping = 0;
};

// Where the optimizer's momentum is lowered for workers that train apart: what is left of it, and
// by what the rate is multiplied, so that a gradient moves the weights as far in the end.
struct LoweredMomentum {
  double momentum, rate_factor;
};
LoweredMomentum lower_momentum(double momentum, size_t workers);

struct UpdatePlan {
  UpdateSettings settings;
  // Whose gradients, and how much each counts; empty: none was finite, and nothing changes, or they
  // are added already.
  struct Part {
    int worker;
    double weight;
  };
  std::vector<Part> parts;
};

// `version` is the number of updates before this one, `samples` that of the samples in the run so
// far.
UpdatePlan plan_update(const UpdateRules& rules, std::span<const Push> pushes, uint64_t version,
                       uint64_t samples);

}  // namespace starling
