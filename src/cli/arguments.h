// The arguments of the command, checked. CLI11 parses them; its errors become Error, with the
// nearest known name for a mistyped one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "compare/plan.h"
#include "job/job.h"

namespace starling {

enum class Command {
  kShowText,
  kTrain,
  kLaunch,
  kEval,
  kStatus,
  kJoin,
  kLeave,
  kStop,
  kReplay,
  kPredict,
  kDescribe,
  kTune,
  kCompare,
  kBenchAllReduce,
  kDataGet,
  kDataInfo
};

struct Arguments {
  Command command = Command::kShowText;
  std::string text;                       // kShowText: help or version
  std::vector<std::string> command_line;  // all of it, to be run again by workers

  std::string target;             // a job file, a run folder or a data set's name
  std::vector<Setting> settings;  // --set, --lanes and --seed, in this order

  // train
  std::filesystem::path run_dir;
  bool resume = false;
  bool overwrite = false;        // of compare too
  std::filesystem::path faults;  // of train
  bool record = false;
  bool no_progress = false;  // of replay and compare too

  // launch, bench
  int workers = 1;
  int lanes = 0;
  std::string fabric = "shm";
  std::string link_rate, link_delay;  // of tcp; empty: those of the machine
  std::vector<std::string> program;   // and its arguments

  // bench
  std::vector<size_t> sizes;  // bytes
  int repeats = 11;
  std::filesystem::path json;

  // status, leave
  bool as_json = false;
  int worker = 0;

  uint64_t timing_seed = 1;  // replay

  // eval, predict
  std::filesystem::path weights;
  std::filesystem::path input, output;
  struct SampleRange {
    uint64_t first = 0, last = 0;  // the last is not part of it
  };
  std::optional<SampleRange> samples;
  uint64_t top = 3;
  bool raw = false;

  CompareOptions compare;     // but for the job and its settings
  std::filesystem::path out;  // of compare

  bool kernels = false;  // describe
  bool dry_run = false;  // tune
};

// Throws input Error.
Arguments parse_arguments(int argc, const char* const* argv);

}  // namespace starling
