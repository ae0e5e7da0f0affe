// From a job to what the library takes: data sets, a model, and the options of a trainer. Errors
// name the field or the layer. No threads; nothing is read but the headers of data files.
#pragma once

#include "job/job.h"
#include "starling/trainer.h"

namespace starling {

struct JobData {
  data::Dataset train;
  data::Dataset validation;  // none when there is neither a split nor test data
  data::Dataset test;        // none when the job names none
};
JobData open_data(const Job& job);

// The shape of a sample, from the job alone where it says it; opens the data only if it must.
Shape input_shape(const Job& job);

Model build_model(const Job& job, const Shape& input);
// That of the job, or the default for its model.
int shard_count(const Job& job, const Model& model);

StrategyOptions strategy_options(const StrategyJob& job);
TrainerOptions trainer_options(const Job& job);

// Epochs, batch, shuffle, callbacks and checkpoints in `folder`; the rest is the caller's.
FitOptions fit_options(const Job& job, const std::filesystem::path& folder);

}  // namespace starling
