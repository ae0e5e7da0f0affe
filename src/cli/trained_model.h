// A trained model for eval and predict: the job, and a trainer with the weights that were found.
#pragma once

#include "cli/arguments.h"
#include "starling/trainer.h"

namespace starling {

struct TrainedModel {
  Job job;
  Trainer trainer;
  std::filesystem::path weights;  // where they came from
};

// From a run's folder: its job, and the weights of --weights, of the end of the run, or of its
// newest good checkpoint. From a job file: the same, of its default run folder. Throws Error.
TrainedModel load_trained(const Arguments& arguments);

}  // namespace starling
