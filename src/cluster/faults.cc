#include "cluster/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/atomic_file.h"

namespace starling {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultPoint::kCount)> kNames = {
    "start",  "strategy", "sliced",        "step",    "gradient",  "spread",     "announced",
    "update", "block",    "block_written", "updated", "committed", "evaluation", "checkpoint",
    "ledger", "record",   "results",       "pushed",  "lend",      "applied"};

}  // namespace

std::string_view name_of(FaultPoint point) { return kNames[static_cast<size_t>(point)]; }

Faults::Faults(const std::vector<Fault>& plan) {
  for (const Fault& fault : plan)
    faults_.push_back({fault, std::make_shared<std::atomic<bool>>(false)});
}

void Faults::handle(Fault::Action action, std::function<void(const Fault&)> handler) {
  handlers_[action] = std::move(handler);
}

void Faults::pass(int worker, FaultPoint point, uint64_t step) const {
  using Action = Fault::Action;
  follow_disk(worker, step);
  for (const auto& [fault, fired] : faults_) {
    if (fault.action == Action::kSlow || fault.action == Action::kDisk || fault.at) continue;
    if (!fault.is_meant_for(worker) || fault.point != point || step < fault.step) continue;
    if (fired->exchange(true)) continue;
    if (tell_) tell_();
    if (fault.action == Action::kHang) {
      while (true) pause();  // this thread; that which beats goes on
    }
    if (fault.action == Action::kKill || fault.action == Action::kFreeze) {
      kill(getpid(), fault.action == Action::kKill ? SIGKILL : SIGSTOP);
      pause();  // the signal may come to another thread a little later
    }
    if (const auto handler = handlers_.find(fault.action); handler != handlers_.end())
      handler->second(fault);
  }
}

void Faults::follow_disk(int worker, uint64_t step) const {
  bool planned = false, full = false;
  for (const auto& [fault, fired] : faults_) {
    if (fault.action != Fault::Action::kDisk || !fault.is_meant_for(worker)) continue;
    planned = true;
    full = full || fault.is_on(step);
  }
  if (planned) pretend_full_disk(full);
}

double Faults::slowness(int worker, uint64_t step) const {
  double slowest = 1;
  for (const auto& [fault, fired] : faults_) {
    if (fault.action == Fault::Action::kSlow && fault.is_meant_for(worker) && fault.is_on(step))
      slowest = std::max(slowest, fault.factor);
  }
  return slowest;
}

}  // namespace starling
