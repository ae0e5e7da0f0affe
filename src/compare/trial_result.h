// What came of one trial, read from its folder: report.json and history.csv. What stands there is
// checked: a file that is damaged is like none. A plain value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace starling {

// The end of an epoch, counted from the beginning of the run.
struct TrialPoint {
  double seconds = 0;  // of training, without evaluation
  double samples = 0;
  double bytes = 0;  // sent by all workers together
  double accuracy = 0;
};

// Seconds of training by what they were spent on, in the mean over workers: docs/workers.md.
struct TimeSplit {
  double input = 0, compute = 0, communication = 0, waiting = 0;
  double hidden = 0;  // communication behind computing: a part of `compute`

  double all() const { return input + compute + communication + waiting; }
};

struct TrialResult {
  std::vector<TrialPoint> points;  // at least one
  bool over_budget = false;        // its first epoch took longer than the budget of time
  TimeSplit times;
  double wall_s = 0;  // of the whole run, with start and evaluation
  std::optional<double> test_accuracy;
  std::vector<uint64_t> staleness;  // gradients by the updates that their weights had missed
  std::optional<double> disagreement;

  const TrialPoint& last() const { return points.back(); }
  // Where the line through the points reaches the accuracy first; nothing: it does not, within the
  // budget.
  std::optional<TrialPoint> reaches(double accuracy) const;
};

// What became of a trial: a result, or why there is none; neither when it did not come to its end.
struct TrialOutcome {
  std::optional<TrialResult> result;
  std::string failure;
};

// What was planned for it.
struct TrialLimits {
  uint64_t workers = 1;
  double seconds = 0;  // of training; points beyond are cut off, and the last is where the line
                       // passes the limit; 0: none
};

TrialOutcome read_trial(const std::filesystem::path& folder, const TrialLimits& limits);

// Of the texts of the two files.
TrialOutcome parse_trial(const std::string& report, const std::string& history,
                         const TrialLimits& limits);

// The ends of epochs of a history.csv; empty when there is none yet, or it is damaged.
std::vector<TrialPoint> parse_points(const std::string& history);

}  // namespace starling
