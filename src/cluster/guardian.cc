#include "cluster/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "starling/error.h"

namespace starling {

Guardian::Guardian() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw run_error(fmt::format("workers can't be watched over: {}", std::strerror(errno)),
                    "raise the limit of open files (ulimit -n)");
  const Socket theirs(ends[0]);
  pipe_ = Socket(ends[1]);
  process_ = fork();
  if (process_ == 0) watch(theirs.fd());
  if (process_ < 0)
    throw run_error(fmt::format("workers can't be watched over: {}", std::strerror(errno)),
                    "raise the limit of processes (ulimit -u)");
  setpgid(process_, process_);  // here too: whichever comes first, the group is there
}

Guardian::~Guardian() {
  signal_group(SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Guardian::signal_group(int signal) const { kill(-process_, signal); }

// In the new process: only calls that are safe after fork.
void Guardian::watch(int pipe) {
  setpgid(0, 0);
  prctl(PR_SET_NAME, "starling-guard");
  // Whoever reads what the launcher and its workers write must not wait for this process too.
  dup2(pipe, STDIN_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close_range(3, ~0u, 0);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  kill(0, SIGKILL);
  _exit(0);
}

}  // namespace starling
