// What of a comparison can't be run, found before the first trial: a trial that is refused would
// end it. The same is refused by cli/train_command.cc, train/fit_apart.cc and World. Pure.
#pragma once

#include <string>

#include "job/job.h"

namespace starling {

struct JobSize {
  uint64_t shards = 0;   // of a batch
  uint64_t samples = 0;  // of an epoch
};

// Why a run of this job would be refused, and what to change; empty: it would not.
std::string misfit(const Job& job, const JobSize& size);

// Whether the strategy can have servers beside its workers.
bool has_servers(const StrategyJob& strategy);

}  // namespace starling
