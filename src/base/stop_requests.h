// The signals that ask to stop, and StopRequests: tells a second request from an echo of the first.
//
// Some signal a process and then its group, and so send it the same signal twice (timeout), and a
// terminal that closes is told of by the kernel and by the shell. Who presses Ctrl-C again takes
// longer. Any thread, and safe in a signal handler.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace starling {

// Ctrl-C, SIGTERM, and SIGHUP unless it is ignored, as under nohup: one that is blocked would come
// all the same.
inline sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (signal != SIGHUP || now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

class StopRequests {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind { kFirst, kEcho, kAgain };

  // What the signal of that number is that comes now.
  Kind take(int signal, Clock::time_point now = Clock::now()) {
    const int64_t us =
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
    int64_t first = 0;
    if (first_.compare_exchange_strong(first, us * kSignals + signal)) return Kind::kFirst;
    const bool is_echo = first % kSignals == signal && us - first / kSignals < kEchoUs;
    return is_echo ? Kind::kEcho : Kind::kAgain;
  }

  bool any() const { return first_.load(std::memory_order_relaxed) != 0; }

 private:
  static constexpr int64_t kSignals = 128, kEchoUs = 250'000;

  std::atomic<int64_t> first_{0};  // its microseconds · kSignals + its number; 0: none has come
  static_assert(decltype(first_)::is_always_lock_free);
};

}  // namespace starling
