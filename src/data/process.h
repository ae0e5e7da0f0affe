// Runs another program (apt-get, npm, tar) and waits for it, with a deadline and without a shell:
// no argument is ever taken for a command. The program inherits the environment, has no standard
// input, and leads a process group of its own, which is killed as a whole when time is up.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace starling::data {

struct ProcessResult {
  enum class Outcome { kExited, kNotFound, kTimedOut };
  Outcome outcome = Outcome::kExited;
  int exit_code = 0;   // 128 + signal when a signal ended it
  std::string output;  // the last few kilobytes of standard output and error

  bool ok() const { return outcome == Outcome::kExited && exit_code == 0; }
};

// `arguments` begins with the program, found in PATH. Throws Error (run_error) only when the
// system has no more processes or descriptors to give, or when this process ignores SIGCHLD.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& folder, std::chrono::milliseconds deadline);

}  // namespace starling::data
