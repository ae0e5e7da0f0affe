// The starling command. Errors are caught here and nowhere else: they are printed as `error: …` and
// `hint: …` on standard error; a worker tells them its launcher, which prints for all. Only src/cli
// reads the environment, handles signals and exits.
#pragma once

#include <exception>
#include <string>

namespace starling {

// Exit codes, beside those of Error: 1 for what went wrong in the run, 2 for what the user gave.
inline constexpr int kExitDone = 0;
inline constexpr int kExitDifferent = 1;  // a replay: the bits are not those of the run
inline constexpr int kExitResumeMe = 75;  // stopped by a signal, and saved: run again with --resume

// Returns the exit code.
int starling_main(int argc, char** argv);

// What an exception is to the user.
struct ErrorText {
  std::string message;
  std::string hint;
  int exit_code = 1;
  bool of_another = false;  // another worker failed first
};
ErrorText error_text(std::exception_ptr exception);

}  // namespace starling
