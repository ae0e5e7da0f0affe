#include "cluster/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/atomic_file.h"

namespace starling {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultPoint::kCount)> kNames = {
    "start",      "taken",      "strategy", "given",  "sliced",        "step",    "gradient",
    "spread",     "announced",  "update",   "block",  "block_written", "updated", "committed",
    "evaluation", "checkpoint", "ledger",   "record", "weights",       "results", "pushed",
    "lend",       "applied",    "meet",     "added"};

}  // namespace

std::string_view name_of(FaultPoint point) { return kNames[static_cast<size_t>(point)]; }

Faults::Faults(const std::vector<Fault>& plan, Fault::Clock::time_point launched)
    : launched_(launched) {
  for (const Fault& fault : plan)
    faults_.push_back({fault, std::make_shared<std::atomic<bool>>(false)});
}

void Faults::handle(Fault::Action action, Handler handler) {
  handlers_[action] = std::move(handler);
}

void Faults::pass(int worker, FaultPoint point, uint64_t step) const {
  using Action = Fault::Action;
  follow_disk(worker, step);
  for (const auto& [fault, fired] : faults_) {
    if (fault.lasts() || !fault.is_meant_for(worker) || !is_due(fault, point, step)) continue;
    const auto handler = handlers_.find(fault.action);
    const bool is_handled = handler != handlers_.end() && handler->second;
    const bool is_own = fault.is_signal() || fault.action == Action::kHang;
    if ((!is_own && !is_handled) || fired->exchange(true)) continue;
    if (tell_ && fault.action != Action::kCorrupt) tell_();
    if (fault.action == Action::kHang) {
      while (true) pause();  // this thread; that which beats goes on
    }
    if (fault.is_signal()) {
      // To this thread, so that it goes no further; a SIGCONT lets a frozen one go on from here.
      raise(fault.action == Action::kKill ? SIGKILL : SIGSTOP);
      continue;
    }
    if (!handler->second(fault)) fired->store(false);
  }
}

double Faults::seconds_since_launch() const {
  return std::chrono::duration<double>(Fault::Clock::now() - launched_).count();
}

bool Faults::is_due(const Fault& fault, FaultPoint point, uint64_t step) const {
  if (fault.at) return seconds_since_launch() >= *fault.at;
  return fault.point == point && step >= fault.step;
}

bool Faults::is_on(const Fault& fault, uint64_t step) const {
  if (fault.at) {
    const double since = seconds_since_launch() - *fault.at;
    return since >= 0 && (fault.seconds == 0 || since < fault.seconds);
  }
  return step >= fault.step && (fault.steps == 0 || step - fault.step < fault.steps);
}

void Faults::follow_disk(int worker, uint64_t step) const {
  bool planned = false, full = false;
  for (const auto& [fault, fired] : faults_) {
    if (fault.action != Fault::Action::kDisk || !fault.is_meant_for(worker)) continue;
    planned = true;
    full = full || is_on(fault, step);
  }
  if (planned) pretend_full_disk(full);
}

double Faults::slowness(int worker, uint64_t step) const {
  double slowest = 1;
  for (const auto& [fault, fired] : faults_) {
    if (fault.action == Fault::Action::kSlow && fault.is_meant_for(worker) && is_on(fault, step))
      slowest = std::max(slowest, fault.factor);
  }
  return slowest;
}

}  // namespace starling
