// Lanes: the threads that compute. Lane 0 is the caller's thread; the others wait for work, first
// spinning (a step is often shorter than a wake-up), then asleep. Every lane has exactly one
// OpenMP thread, so that oneDNN's sums do not depend on how many lanes there are, and flushes
// denormal numbers to zero.
#pragma once

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace starling {

class Lanes {
 public:
  // `count` ≥ 1.
  explicit Lanes(int count);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int count() const { return count_; }

  // Runs work(lane) on every lane and returns when all are done. What a lane throws is thrown
  // here, the lowest lane's first. Not reentrant; called from one thread.
  void run(FunctionRef<void(int lane)> work);

  // Whether arithmetic overflowed, divided by zero or had no result on a lane in the last run(). If
  // not, it took finite numbers to finite numbers: the processor keeps watch at no cost. It does
  // not watch the conversion to bf16.
  bool raised() const { return raised_.load(std::memory_order_relaxed); }

 private:
  void loop(int lane);
  void call(int lane);

  const int count_;
  const bool spin_;  // whether all lanes have a core
  const FunctionRef<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> round_{0};  // counts calls of run
  std::atomic<int> unfinished_{0};
  std::atomic<bool> ending_{false};
  std::atomic<bool> raised_{false};
  std::vector<std::exception_ptr> failures_;
  std::vector<std::jthread> threads_;
};

// The cores that this process may use.
int available_cores();

}  // namespace starling
