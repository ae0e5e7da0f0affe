// Membership: a worker's line to its launcher. A thread of its own beats, so that the launcher can
// tell a frozen worker from one that computes, and listens: when a new view is being made, whatever
// the worker waits for is interrupted. The rest is for the worker's own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "base/service_thread.h"
#include "cluster/control.h"
#include "fabric/fabric.h"
#include "param/conductor.h"

namespace starling {

class Membership {
 public:
  static constexpr std::chrono::milliseconds kBeatEvery{50};

  // When it is made, the launcher has been told that the worker lives.
  explicit Membership(Socket socket);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // True while a view is being made that is later than the one that was entered: who waits for
  // others has to give it up.
  const std::atomic<bool>& interrupted() const { return interrupted_; }
  // Whether the launcher has asked for a pause after a step since the last view.
  bool wants_change() const { return wants_change_.load(std::memory_order_relaxed); }
  // Whether nothing more will come from it. Who waits for the other workers need not care.
  bool launcher_is_gone() const { return ended_.load(std::memory_order_relaxed); }
  // Called by the other thread when one of these begins: wakes who waits. Null: nobody.
  void wake_by(std::function<void()> wake);
  // The worker is in this view now.
  void enter(int64_t view);

  // Where the worker is in the run, for people who ask.
  void set_step(uint64_t step, uint64_t steps) {
    step_.store(step, std::memory_order_relaxed);
    steps_.store(steps, std::memory_order_relaxed);
  }
  // The worker gets on: without that, it counts as stuck after a while.
  void note_progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  // As often as it waits, on any thread, and within another wait, too: meanwhile it is not the one
  // that is stuck.
  void begin_waiting() { waits_.fetch_add(1, std::memory_order_relaxed); }
  void end_waiting() { waits_.fetch_sub(1, std::memory_order_relaxed); }

  // What the conductor has said in this view since the last call, or since forget_orders(). All of
  // it comes before interrupted() becomes true.
  std::vector<Order> take_orders();
  void forget_orders();

  // What the coordinator said next, of commit.h. Nothing at the deadline, or when the launcher is
  // gone.
  std::optional<ControlMessage> next(Instant deadline);
  // As it is: it says of which view it is. Both wait while the launcher has much to read, and are
  // false when it is gone.
  bool send(const commit::Message& message);
  // Marked with the view and the step.
  bool send(ControlMessage message);

 private:
  void listen(int quit);
  void beat() const;
  bool deliver(const ControlMessage& message) const;
  bool take_messages();  // true: no more will come

  const Socket socket_;
  std::atomic<bool> interrupted_{false}, wants_change_{false}, ended_{false};
  std::atomic<uint64_t> progress_{0}, step_{0}, steps_{0};
  std::atomic<int> waits_{0};
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ControlMessage> inbox_;
  std::vector<Order> orders_;
  std::function<void()> wake_;
  int64_t view_ = 0, prepared_ = 0, change_in_ = -1;
  ServiceThread thread_;  // last: it uses all of the above
};

}  // namespace starling
