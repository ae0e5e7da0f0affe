#include "strategy/background_lane.h"

#include "engine/lanes.h"

namespace starling {

BackgroundLane::BackgroundLane() : thread_([this] { loop(); }) {}

BackgroundLane::~BackgroundLane() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundLane::start(std::function<void()> work) {
  wait();
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void BackgroundLane::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundLane::loop() {
  Lanes lane(1);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return work_ || ending_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      lane.run([this](int) { work_(); });
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    work_ = nullptr;
    failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace starling
