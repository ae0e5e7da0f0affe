// ComparePlan: the trials of a comparison, in their order: the first seed of everything, then the
// second, so that what has been measured so far can always be compared. Every trial is a run of its
// own,
//   <out>/runs/<condition>/<strategy>/seed-<n>
// of the job in <out>/job.toml with a few settings. The reference, `single`, is a run of one
// process, which conditions mean nothing to: it is done once for all of them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "compare/conditions.h"
#include "compare/strategies.h"
#include "job/job.h"

namespace starling {

struct CompareOptions {
  std::filesystem::path job_file;
  std::vector<Setting> settings;
  std::string strategies = "all";
  ConditionLists conditions;  // no workers: those of the job, or 2
  uint64_t seeds = 3;         // job.seed and the next
  // The budget of a trial: epochs, or samples, or seconds of training; none: the job's epochs.
  std::optional<uint64_t> epochs, samples;
  std::optional<double> seconds;
  std::optional<double> goal;  // an accuracy, 0 … 1
};

// A strategy under one condition.
struct CompareEntry {
  ComparedStrategy strategy;
  std::optional<size_t> condition;  // in the plan's; none: the reference, for all
  std::vector<Setting> settings;    // of the job, but for the seed
  std::string faults;               // a file of faults; empty: none
  std::string folder;               // of its seeds, below the comparison's
};

struct Trial {
  size_t entry = 0;
  uint64_t seed = 1;
};

struct ComparePlan {
  Job job;             // what all trials have in common; its seed is the first
  std::string target;  // the job file, as it was given
  std::vector<Condition> conditions;
  std::vector<CompareEntry> entries;
  std::vector<uint64_t> seeds;
  std::vector<Trial> trials;
  std::optional<double> goal;
  std::string budget;              // "3 epochs of 60000 samples"
  std::string data;                // how many samples there are, and what for
  std::vector<std::string> notes;  // what people should know of it

  bool is_reference(const CompareEntry& entry) const { return !entry.condition; }
  std::string condition_label(const CompareEntry& entry) const {
    return entry.condition ? conditions[*entry.condition].label() : "1 process";
  }
  uint64_t workers_of(const Trial& trial) const {
    const std::optional<size_t>& condition = entries[trial.entry].condition;
    return condition ? conditions[*condition].workers : 1;
  }
  std::string trial_folder(const Trial& trial) const;
  // Settings that turn the common job into the trial's.
  std::vector<Setting> trial_settings(const Trial& trial) const;
};

// Opens the data, to know how many samples there are. Throws input Error.
ComparePlan make_compare_plan(const CompareOptions& options);

}  // namespace starling
