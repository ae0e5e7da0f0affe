#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace starling {
namespace {

std::atomic<bool> requested{false}, answered{true};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_signal(int number) {
  if (requested.exchange(true)) _exit(128 + number);
  if (!answered) return;
  constexpr char kMessage[] = "\nstopping: saving a checkpoint (once more to end at once)\n";
  // Nothing can be done when standard error is closed.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

StopSignalsWait::StopSignalsWait() {
  const sigset_t signals = stop_signals();
  sigprocmask(SIG_BLOCK, &signals, &before_);
}

StopSignalsWait::~StopSignalsWait() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

void handle_stop_signals(bool tell) {
  answered = tell;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A launcher starts its workers with these blocked.
  const sigset_t signals = stop_signals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

bool stop_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace starling
