#include "cluster/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "starling/error.h"

namespace starling {

Guardian::Guardian(const GuardianOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw run_error(fmt::format("workers can't be watched over: {}", std::strerror(errno)),
                    "raise the limit of open files (ulimit -n)");
  const Socket theirs(ends[0]);
  pipe_ = Socket(ends[1]);
  process_ = fork();
  if (process_ == 0) watch(theirs.fd(), options);
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
void Guardian::watch(int pipe, const GuardianOptions& options) {
  constexpr int kWorkers = 3;
  setpgid(0, 0);
  prctl(PR_SET_NAME, "starling-guard");
  // Whoever reads what the launcher and its workers write must not wait for this process too.
  dup2(pipe, STDIN_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  const bool waits = options.farewell.count() > 0 && dup2(options.workers, kWorkers) == kWorkers;
  close_range(waits ? kWorkers + 1 : kWorkers, ~0u, 0);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  pollfd workers{kWorkers, 0, 0};  // it hangs up when the last of them has ended
  while (waits && poll(&workers, 1, static_cast<int>(options.farewell.count())) < 0 &&
         errno == EINTR) {
  }
  kill(0, SIGKILL);
  _exit(0);
}

}  // namespace starling
