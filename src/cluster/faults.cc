#include "cluster/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace starling {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultPoint::kCount)> kNames = {
    "start",      "strategy",   "sliced", "step",          "gradient", "spread",
    "announced",  "update",     "block",  "block_written", "updated",  "committed",
    "evaluation", "checkpoint", "ledger", "results"};

}  // namespace

std::string_view name_of(FaultPoint point) { return kNames[static_cast<size_t>(point)]; }

Faults::Faults(const std::vector<Fault>& plan) {
  for (const Fault& fault : plan)
    faults_.push_back({fault, std::make_shared<std::atomic<bool>>(false)});
}

void Faults::pass(int worker, FaultPoint point, uint64_t step) const {
  for (const Armed& armed : faults_) {
    const Fault& fault = armed.fault;
    if (fault.action == Fault::Action::kSlow) continue;
    if (fault.worker != worker || fault.point != point || step < fault.step) continue;
    if (armed.fired->exchange(true)) continue;
    if (tell_) tell_();
    if (fault.action == Fault::Action::kHang) {
      while (true) pause();  // this thread; that which beats goes on
    }
    kill(getpid(), fault.action == Fault::Action::kKill ? SIGKILL : SIGSTOP);
    pause();  // the signal may come to another thread a little later
  }
}

double Faults::slowness(int worker, uint64_t step) const {
  double slowest = 1;
  for (const auto& [fault, fired] : faults_) {
    const bool is_meant = fault.worker == worker || fault.worker == Fault::kEveryWorker;
    const bool is_on = step >= fault.step && (fault.steps == 0 || step - fault.step < fault.steps);
    if (fault.action == Fault::Action::kSlow && is_meant && is_on)
      slowest = std::max(slowest, fault.factor);
  }
  return slowest;
}

}  // namespace starling
