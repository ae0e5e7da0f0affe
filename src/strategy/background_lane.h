// BackgroundLane: a thread beside the lanes that does one piece of work at a time. It has the
// lanes' settings of arithmetic, so that its sums have their bits. Not pinned: it runs where a core
// is free, and where none is it takes its turn with the lanes.
//
// One thread uses it. What start() was given happens after start() and before wait() returns, so
// that both sides may share memory without more. The destructor waits for the work under way: who
// gives work sees to it that it ends.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace starling {

class BackgroundLane {
 public:
  BackgroundLane();
  ~BackgroundLane();
  BackgroundLane(const BackgroundLane&) = delete;
  BackgroundLane& operator=(const BackgroundLane&) = delete;

  // Waits for earlier work first.
  void start(std::function<void()> work);
  // Returns when no work is under way; throws what it threw.
  void wait();

 private:
  void loop();

  std::mutex mutex_;  // guards all but the thread
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: none is under way
  std::exception_ptr failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace starling
