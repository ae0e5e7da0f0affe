#include "job/solo_requests.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "cluster/run_status.h"

namespace starling {

SoloRequests::SoloRequests(const std::filesystem::path& folder)
    : socket_(folder), thread_("starling-ask", [this](int quit) { listen(quit); }) {}

void SoloRequests::listen(int quit) {
  while (true) {
    pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {quit, POLLIN, 0}};
    if (poll(polled, 2, -1) < 0) continue;
    if (polled[1].revents != 0) return;
    socket_.serve([&](const std::string& words) { return answer(words); });
  }
}

std::string SoloRequests::answer(const std::string& words) {
  if (words == "stop") {
    stop_ = true;
    return to_text(OrderedJson{{"process", getpid()}});
  }
  if (words != "status") {
    return refusal("the run is one process, without a launcher: workers can't join or leave",
                   "start it with --workers 2, or with --strategy all_reduce for one worker that "
                   "others may join");
  }
  const uint64_t step = step_.load(std::memory_order_relaxed);
  return to_text(RunStatus{
      .state = stop_requested() ? "stopping" : "running",
      .view = 1,
      .step = step,
      .steps = steps_.load(std::memory_order_relaxed),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(),
      .workers = {{.process = getpid(), .state = "working", .step = step}}}
                     .to_json());
}

}  // namespace starling
