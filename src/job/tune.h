// Tuning: which shards and micro-batch are quickest on this machine, measured with the job's own
// data, and written into the job file. Both are part of the job's numbers: a tuned job gives other
// bits than before, but again the same ones everywhere.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "job/job.h"

namespace starling {

struct TuneCandidate {
  uint64_t shards = 1;
  uint64_t micro_batch = 1;
  double samples_per_s = 0;
};

struct TuneOptions {
  double seconds_each = 0.25;  // of a measurement; each candidate gets two
  std::function<void(const TuneCandidate&)> on_measured = {};
};

// All candidates that were measured, the quickest first. Takes some seconds. Throws Error.
std::vector<TuneCandidate> tune_job(const Job& job, const TuneOptions& options = {});

// `text` of a job file with the two top-level fields set and all else left as it is. Throws input
// Error when it is not a job file.
std::string with_tuning(const std::string& text, const std::string& where, uint64_t shards,
                        uint64_t micro_batch);

}  // namespace starling
