// SoloRequests: answers what people ask of a run without a launcher, of one process. Other than a
// launcher it has a thread for that.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

#include "base/service_thread.h"
#include "cluster/request_socket.h"

namespace starling {

class SoloRequests {
 public:
  // Throws Error when the folder can't have a socket.
  explicit SoloRequests(const std::filesystem::path& folder);

  void set_step(uint64_t step, uint64_t steps) {
    step_.store(step, std::memory_order_relaxed);
    steps_.store(steps, std::memory_order_relaxed);
  }
  // Somebody wants the run to save and end.
  bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }

 private:
  void listen(int quit);
  std::string answer(const std::string& words);

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> step_{0}, steps_{0};
  std::atomic<bool> stop_{false};
  RequestSocket socket_;
  ServiceThread thread_;  // last: it uses all of the above
};

}  // namespace starling
