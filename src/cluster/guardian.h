// Guardian: a small process that leads the process group of all workers, and ends the whole group
// when the launcher is gone, however it went: also what the workers have started themselves, which
// the kernel would leave running. Holding the group's number, it keeps it from being given away.
//
// It watches a pipe whose other end only the launcher has. One thread.
#pragma once

#include <sys/types.h>

#include "fabric/tcp/socket.h"

namespace starling {

class Guardian {
 public:
  // Throws Error when there can't be another process. Signals that the caller blocks don't end it.
  Guardian();
  // Ends the group, and waits for the guardian's own end.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // To be entered with setpgid.
  pid_t group() const { return process_; }
  void signal_group(int signal) const;

 private:
  [[noreturn]] static void watch(int pipe);

  Socket pipe_;
  pid_t process_ = -1;
};

}  // namespace starling
