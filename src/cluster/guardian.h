// Guardian: a small process that leads the process group of all workers, and ends the whole group
// when the launcher is gone, however it went: also what the workers have started themselves, which
// the kernel would leave running. Holding the group's number, it keeps it from being given away.
//
// Workers may be given time to save and end by themselves first: the group is ended when all of
// them have, or when that time is over. Who asks them to is the kernel (worker_starter.cc): they
// must hear of it even if the guardian was killed too.
//
// It watches a pipe whose other end only the launcher has. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "fabric/tcp/socket.h"

namespace starling {

struct GuardianOptions {
  std::chrono::milliseconds farewell{0};  // that workers have after the launcher's death; if any:
  int workers = -1;  // the read end of a pipe that the launcher and every worker can write to
};

class Guardian {
 public:
  // Throws Error when there can't be another process. Signals that the caller blocks don't end it.
  explicit Guardian(const GuardianOptions& options = {});
  // Ends the group, and waits for the guardian's own end.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // To be entered with setpgid.
  pid_t group() const { return process_; }
  void signal_group(int signal) const;

 private:
  [[noreturn]] static void watch(int pipe, const GuardianOptions& options);

  Socket pipe_;
  pid_t process_ = -1;
};

}  // namespace starling
