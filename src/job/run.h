// run_job: a whole run in its folder: data, model, training, test, and everything that is written.
//   job.toml           the job as it was run: every field, with --set and defaults
//   log.txt            what happened, when
//   history.csv, curves.svg   after every epoch
//   ledger.jsonl       proof that each epoch used every sample once
//   record.txt         what workers that trained apart did, if it is to be recorded
//   checkpoints/       the state of the run, to resume from
//   best.safetensors   the best epoch's weights, if [training.save_best] is there
//   model.safetensors  the weights at the end
//   report.json        the figures of the run
// Every file appears whole or not at all. Of several workers only the chief writes and tells
// anything. Runs on the caller's thread until the end of the run.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>

#include "cluster/faults.h"
#include "job/job.h"
#include "observe/progress.h"
#include "observe/report.h"
#include "starling/cluster.h"
#include "starling/history.h"

namespace starling {

struct RunOptions {
  std::filesystem::path folder = {};  // empty: runs/<name>
  bool resume = false;
  bool overwrite = false;
  bool record = false;       // what workers that train apart do
  std::FILE* out = nullptr;  // for progress and notes; required, and outlives the run
  ProgressOptions progress = {};
  std::function<bool()> should_stop = {};  // asked in every step; true: save and end
  std::vector<Fault> faults = {};          // that are to happen
  Cluster cluster = {};  // the workers that run the job together: all call run_job
};

struct RunResult {
  std::filesystem::path folder;
  Report report;
  History history;
  bool stopped = false;  // by should_stop: a checkpoint is there to resume from
};

// Throws Error.
RunResult run_job(const Job& job, const RunOptions& options);

}  // namespace starling
