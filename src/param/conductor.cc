#include "param/conductor.h"

#include <algorithm>
#include <utility>

namespace starling {

Conductor::Conductor(const Stretch& stretch)
    : free_(stretch.free),
      lease_(stretch.lease),
      consistency_(make_consistency(stretch.consistency, stretch.workers)),
      version_(stretch.version),
      idle_(stretch.workers) {}

std::vector<Order> Conductor::begin() { return go_on(); }

std::vector<Order> Conductor::pushed(const Push& push) {
  const auto lent = lent_.find(push.worker);
  if (lent == lent_.end() || lent->second != push.samples) return {};
  lent_.erase(lent);
  waiting_.emplace(push.worker, push);
  obey(consistency_->arrive(push.worker));
  return go_on();
}

std::vector<Order> Conductor::drain() {
  draining_ = true;
  return go_on();
}

void Conductor::obey(const Consistency::Fate& fate) {
  for (const int worker : fate.dropped) {
    free_.add(waiting_.extract(worker).mapped().samples);
    orders_.push_back({.kind = Order::Kind::kDrop, .worker = worker, .samples = {}, .pushes = {}});
    idle_.push_back(worker);
    ++dropped_;
  }
  if (fate.applied.empty()) return;
  Order update{.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {}};
  for (const int worker : fate.applied) {
    update.pushes.push_back(waiting_.extract(worker).mapped());
    idle_.push_back(worker);
  }
  ++version_;
  orders_.push_back(std::move(update));
}

void Conductor::lend() {
  for (auto at = idle_.begin(); at != idle_.end() && !draining_ && !free_.empty();) {
    const int worker = *at;
    if (!consistency_->may_begin(worker)) {
      ++at;
      continue;
    }
    at = idle_.erase(at);
    const SampleRange samples = *free_.take(lease_);
    consistency_->begin(worker);
    lent_.emplace(worker, samples);
    orders_.push_back(
        {.kind = Order::Kind::kLend, .worker = worker, .samples = samples, .pushes = {}});
  }
}

std::vector<Order> Conductor::go_on() {
  if (over_) return {};
  lend();
  if (draining_ || free_.empty()) obey(consistency_->run_dry());
  if (!draining_) lend();  // what was dropped, or waited for that update
  over_ = lent_.empty() && waiting_.empty() && (draining_ || free_.empty());
  if (over_) orders_.push_back({});
  return std::exchange(orders_, {});
}

}  // namespace starling
