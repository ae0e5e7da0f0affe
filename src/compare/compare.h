// run_comparison: the trials of a plan, one after the other, in a folder:
//   job.toml                what all trials have in common
//   runs/…/seed-1/          a trial's run (docs/job.md says what is in it)
//   runs/…/seed-1.log       what it wrote to the terminal
//   runs/…/seed-1.json      its settings: a trial that was done with these is not done again
//   compare.json, compare.html   what is known so far, new after every trial
// A folder holds trials of one job with one budget and data; other strategies, conditions and seeds
// may be added by later calls. Trials are processes: they don't disturb one another, and one that
// fails is told of, and the others go on. Blocks until all are done, or should_stop() says so.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "compare/plan.h"
#include "compare/summary.h"

namespace starling {

struct ComparisonOptions {
  std::filesystem::path folder;
  bool overwrite = false;                  // what a comparison before left is removed
  std::string program;                     // the path of the command `starling`
  std::FILE* out = nullptr;                // for progress; null: none is shown
  bool terminal = false;                   // that is one: progress of the trial under way, too
  std::function<bool()> should_stop = {};  // asked all the time; true: end the trial, and return
};

struct ComparisonResult {
  Summary summary;
  bool stopped = false;
};

// Throws Error: for a folder that holds something else, and for a trial that says that what was
// given is wrong.
ComparisonResult run_comparison(const ComparePlan& plan, const ComparisonOptions& options);

}  // namespace starling
