// UpdateRule: what an update of pushes is, as a function of the log and of the optimizer: the same
// for all who keep slices, and for a replay. A plain object; `optimizer` outlives it.
#pragma once

#include <functional>
#include <vector>

#include "optim/update.h"
#include "param/conductor.h"

namespace starling {

struct UpdateRule {
  const Optimizer* optimizer = nullptr;
  // The learning rate of an update of so many samples, after so many in this stretch.
  std::function<double(uint64_t before, uint64_t samples)> rate;

  // Of an update that is made of these, after `version` updates, and after `before` samples in this
  // stretch.
  UpdateSettings settings(const std::vector<Push>& pushes, uint64_t version, uint64_t before) const;
};

// Of all of them, whether their gradients are finite or not.
uint64_t samples_of(const std::vector<Push>& pushes);

}  // namespace starling
