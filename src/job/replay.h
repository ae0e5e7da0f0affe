// replay_run: does again, in this process, what workers that trained apart did in a run that was
// recorded (`starling train --record`), and compares the weights with those that the run reported.
// Reads the run's folder and changes nothing in it. Runs on the caller's thread.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/job.h"
#include "observe/progress.h"

namespace starling {

struct ReplayRunOptions {
  std::vector<Setting> settings = {};  // of what has no effect on bits: lanes
  uint64_t timing_seed = 1;            // of the moments at which gradients are computed
  std::FILE* out = nullptr;            // for progress and notes; required, and outlives the run
  ProgressOptions progress = {};
};

struct ReplayResult {
  uint64_t updates = 0, gradients = 0, dropped = 0;
  size_t stretches = 0, workers = 0;  // of all stretches, how many different ones computed
  double seconds = 0;
  std::string recorded_sha256, weights_sha256;  // of the run's report; of this
  bool same_weights() const { return recorded_sha256 == weights_sha256; }
  // Whether weights and running statistics are those that the run has saved, if it has.
  std::optional<bool> same_saved;
  bool is_same() const { return same_weights() && same_saved.value_or(true); }
};

// Throws Error.
ReplayResult replay_run(const std::filesystem::path& folder, const ReplayRunOptions& options);

}  // namespace starling
