// TrialProcess: one trial as a process of its own, with its output in a file. It and all that it
// starts end with this object, and also when this program is killed: a Guardian sees to it. One
// thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cluster/guardian.h"

namespace starling {

class TrialProcess {
 public:
  // `command` begins with the program's path. Throws Error when it can't be started.
  TrialProcess(const std::vector<std::string>& command, const std::filesystem::path& log);
  // Kills it if it is still there.
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  // Waits for its end, however long it takes; some times a second on_look() is called. When
  // should_stop() says so it is asked to end, and killed after a while. The exit code, or 128 +
  // signal.
  int wait(const std::function<bool()>& should_stop, const std::function<void()>& on_look);

 private:
  Guardian guardian_;
  Socket pidfd_;
  pid_t process_ = -1;
  bool ended_ = false;
};

}  // namespace starling
