// Where the time of our own step goes: every kernel of the plan with a clock around it, and the
// whole step split into kernels, the rest of the gradient, and the update.
#pragma once

#include <string>

#include "job.h"

namespace bench {

// Runs about `steps` steps on one lane and returns a table. Changes the weights.
std::string profile(Job& job, int steps);

}  // namespace bench
