// RunStatus: what a run that is under way says of itself, and the answers of its launcher to what
// people ask (request_socket.h), as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace starling {

struct WorkerStatus {
  int worker = 0;
  int process = 0;
  bool serves = false;  // and computes nothing
  std::string state;    // working, joining, leaving, left, lost, ended
  uint64_t step = 0;    // that it is at
  double silent = 0;    // seconds since it gave a sign of life
};

struct RunStatus {
  std::string state;  // running, waiting (for workers), stopping
  int64_t view = 0;
  uint64_t step = 0, steps = 0;  // of the run; 0: not known yet
  int min_workers = 1;
  double seconds = 0;  // since the launch
  std::vector<WorkerStatus> workers;

  OrderedJson to_json() const;
  // Throws Error when it is something else.
  static RunStatus from_json(const Json& json);

  const WorkerStatus* find(int worker) const;
  int working() const;
};

// What was asked for can't be done.
std::string refusal(const std::string& why, const std::string& hint);

// The answer of the run in the folder to a request. Throws Error when no run is under way there, or
// it refuses.
Json request(const std::string& folder, const std::string& words);

}  // namespace starling
