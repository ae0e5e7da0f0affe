// What the command takes from its environment, read once at the start.
//   STARLING_CACHE, XDG_CACHE_HOME or HOME   where fetched data sets are kept
//   STARLING_ISA                             caps the instruction set, beside the job's `isa`
//   STARLING_RANK                            set by a launcher for its workers
//   NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG   how the terminal is written to
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "observe/progress.h"

namespace starling {

struct Environment {
  std::filesystem::path cache;  // empty: the library's default
  std::string isa = "native";   // the most that kernels may use
  bool color = true;            // colours are welcome on a terminal
  bool unicode = false;         // the locale is UTF-8
  bool is_worker = false;       // started by a launcher
  bool is_follower = false;     // a worker that is not the chief
};

using Variable = std::function<const char*(const char* name)>;  // null when it is not set

// How a command shows its progress on standard error, if it is to.
ProgressOptions progress_on_stderr(const Environment& environment, bool enabled);

Environment read_environment();
Environment read_environment(const Variable& variable);

}  // namespace starling
