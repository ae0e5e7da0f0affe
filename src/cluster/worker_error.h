// WorkerError: what a worker tells its launcher when it fails, through a pipe that all workers of
// the job have. So what is wrong with the job is said once, by the launcher, and not by each worker
// in turn; and where one worker's failure was another's end, only the cause.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace starling {

struct WorkerError {
  int rank = 0;
  int exit_code = 1;
  bool of_another = false;  // it failed because another worker was lost
  std::string message, hint;

  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// Writes it in one piece, however many write at once; long texts are cut. False if nobody can read
// it.
bool send_worker_error(int pipe, const WorkerError& error);

// All that have come so far. The pipe does not block.
std::vector<WorkerError> receive_worker_errors(int pipe);

// Those that are worth a person's time, by rank: one of those that say the same, and causes rather
// than what followed from them.
std::vector<WorkerError> errors_to_tell(std::vector<WorkerError> errors);

}  // namespace starling
