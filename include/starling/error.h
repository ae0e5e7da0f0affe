// Error: what ends a run. It is thrown for a bad job, a bad file or misuse, and for what goes
// wrong beyond repair; the command catches it once and prints `error: …` and `hint: …`.
#pragma once

#include <stdexcept>
#include <string>

namespace starling {

class Error : public std::runtime_error {
 public:
  // Who has to act: the user mends what was given (exit code 2), or the run itself failed (1).
  enum class Cause { kInput, kRun };

  Error(Cause cause, const std::string& message, std::string hint)
      : std::runtime_error(message), cause_(cause), hint_(std::move(hint)) {}

  Cause cause() const { return cause_; }
  const std::string& hint() const { return hint_; }
  int exit_code() const { return cause_ == Cause::kInput ? 2 : 1; }

 private:
  Cause cause_;
  std::string hint_;
};

// What the user gave is wrong: `message` says what, `hint` says what to do about it.
inline Error input_error(const std::string& message, std::string hint) {
  return Error(Error::Cause::kInput, message, std::move(hint));
}

// Something went wrong in the run.
inline Error run_error(const std::string& message, std::string hint) {
  return Error(Error::Cause::kRun, message, std::move(hint));
}

}  // namespace starling
