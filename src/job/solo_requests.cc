#include "job/solo_requests.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster/run_status.h"

namespace starling {

SoloRequests::SoloRequests(const std::filesystem::path& folder)
    : socket_(folder), quit_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Signals are for the thread that trains.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { listen(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SoloRequests::~SoloRequests() {
  eventfd_write(quit_.fd(), 1);
  thread_.join();
}

void SoloRequests::listen() {
  pthread_setname_np(pthread_self(), "starling-ask");
  while (true) {
    pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {quit_.fd(), POLLIN, 0}};
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
