#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/stop_requests.h"

namespace starling {
namespace {

StopRequests requests;
std::atomic<bool> hung_up{false}, answered{true};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

// SIGHUP says that the terminal or the launcher is gone: it asks to stop, and never to hurry.
void on_signal(int number) {
  const bool was_asked = stop_requested();
  if (number == SIGHUP) {
    hung_up = true;
  } else if (requests.take(number) == StopRequests::Kind::kAgain) {
    _exit(128 + number);
  }
  if (was_asked || !answered) return;
  constexpr char kMessage[] = "\nstopping: saving a checkpoint (once more to end at once)\n";
  // Nothing can be done when standard error is closed.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
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
  const sigset_t signals = stop_signals();
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&signals, signal) == 1) sigaction(signal, &action, nullptr);
  }
  // A launcher starts its workers with these blocked.
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

void outlive_listeners() { signal(SIGPIPE, SIG_IGN); }

bool stop_requested() { return requests.any() || hung_up.load(std::memory_order_relaxed); }

}  // namespace starling
