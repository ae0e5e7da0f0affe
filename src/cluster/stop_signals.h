// StopSignals: signals that ask a job to stop, kept for the launcher to read.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/stop_requests.h"
#include "fabric/tcp/socket.h"

namespace starling {

class StopSignals {
 public:
  StopSignals() {
    const sigset_t signals = stop_signals();
    sigprocmask(SIG_BLOCK, &signals, &before_);
    descriptor_ = Socket(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~StopSignals() { restore(); }

  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int fd() const { return descriptor_.fd(); }
  // How many requests have come, without their echoes.
  int take() {
    int count = 0;
    for (signalfd_siginfo info; read(fd(), &info, sizeof info) == sizeof info;)
      count += requests_.take(static_cast<int>(info.ssi_signo)) != StopRequests::Kind::kEcho;
    return count;
  }

 private:
  StopRequests requests_;
  sigset_t before_;
  Socket descriptor_;
};

}  // namespace starling
