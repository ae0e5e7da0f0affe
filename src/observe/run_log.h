// RunLog: the log of one run, `log.txt` in its folder, with warnings shown to the person as well.
// Any thread may log. A log that can't be written (a full disk) never ends the run: that is said
// once, as a warning.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

namespace starling {

class RunLog {
 public:
  // What shows a line to the person: by default it goes to standard error; a progress bar that must
  // not be torn gives its print_line.
  using Show = std::function<void(std::string_view line)>;

  // Opens the file, or goes on with it in a resumed run; throws Error.
  explicit RunLog(const std::filesystem::path& path, Show show = {});
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void info(std::string_view message);
  // Also shown, as `warning: …`.
  void warn(std::string_view message);
  // Only in the file: the command shows errors by itself.
  void error(std::string_view message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling
