#include "param/conductor.h"

#include <algorithm>
#include <utility>

namespace starling {
namespace {

// A worker that is so many times slower than another has its samples lent to that one too.
constexpr double kMuchSlower = 2;

Speeds speeds_of(const Stretch& stretch) {
  Speeds speeds;
  for (size_t i = 0; i < stretch.speeds.size(); ++i)
    speeds.know(stretch.workers[i], stretch.speeds[i]);
  return speeds;
}

}  // namespace

Conductor::Conductor(const Stretch& stretch)
    : free_(stretch.free),
      workers_(stretch.workers),
      consistency_(make_consistency(stretch.consistency, stretch.workers)),
      partition_({.kind = stretch.partition,
                  .workers = stretch.workers,
                  .samples = stretch.free.size(),
                  .batch = stretch.batch,
                  .spare = consistency_->spare(),
                  .tasks = consistency_->tasks(),
                  .waits = consistency_->waits()},
                 speeds_of(stretch)),
      version_(stretch.version) {
  const uint32_t leases = consistency_->lends_ahead() ? 1 + stretch.ahead : 1;
  for (uint32_t i = 0; i < leases; ++i) idle_.insert(idle_.end(), workers_.begin(), workers_.end());
}

std::vector<Order> Conductor::begin() { return go_on(); }

std::vector<Order> Conductor::pushed(const Push& push) {
  const auto lent = lent_.find(push.worker);
  if (lent == lent_.end() || lent->second.front() != push.samples) return {};
  lent->second.pop_front();
  if (lent->second.empty()) lent_.erase(lent);
  partition_.took(push.worker, push.samples.size(), push.seconds);
  waiting_.emplace(push.worker, push);
  obey(consistency_->arrive(push.worker));
  meet(push);
  return go_on();
}

std::vector<Order> Conductor::drain() {
  draining_ = true;
  return go_on();
}

std::vector<Order> Conductor::cut_off() {
  if (added_) close();
  over_ = true;
  return std::exchange(orders_, {});
}

void Conductor::obey(const Consistency::Fate& fate) {
  const auto take = [&](int worker, Order::Kind kind) {
    idle_.push_back(worker);
    const Push push = waiting_.extract(worker).mapped();
    orders_.push_back({.kind = kind, .worker = worker, .samples = {}, .pushes = {push}});
    return push.samples;
  };
  for (const int worker : fate.dropped) {
    const SampleRange samples = take(worker, Order::Kind::kDrop);
    free_.add(samples);
    partition_.give_back(worker, samples.size());
  }
  for (const int worker : fate.repeated) take(worker, Order::Kind::kDrop);
  dropped_ += fate.dropped.size() + fate.repeated.size();
  for (const int worker : fate.added) take(worker, Order::Kind::kAdd);
  added_ = added_ || !fate.added.empty();
  if (fate.closes) close();
  if (fate.applied.empty()) return;
  Order update{.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {}};
  for (const int worker : fate.applied) {
    update.pushes.push_back(waiting_.extract(worker).mapped());
    idle_.push_back(worker);
  }
  ++version_;
  orders_.push_back(std::move(update));
}

void Conductor::meet(const Push& push) {
  met_[push.worker] = push.met;
  if (draining_ || called_[push.worker] > push.met) return;
  std::set<int> free;  // as far as is known
  for (const int other : workers_) {
    if (other != push.worker && called_[other] == met_[other]) free.insert(other);
  }
  const std::optional<int> partner = consistency_->partner(push.worker, free, version_);
  if (!partner) return;
  ++called_[push.worker];
  ++called_[*partner];
  orders_.push_back({.kind = Order::Kind::kMeet,
                     .worker = push.worker,
                     .partner = *partner,
                     .samples = {},
                     .pushes = {}});
}

void Conductor::close() {
  ++version_;
  added_ = false;
  orders_.push_back({.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {}});
}

void Conductor::keep_to_those_there() {
  if (partition_.is_common()) return;
  std::set<int> there;
  for (const int worker : workers_) {
    if (partition_.lease(worker) > 0 || lent_.contains(worker) || waiting_.contains(worker))
      there.insert(worker);
  }
  consistency_->keep_to(there);
}

void Conductor::lend() {
  keep_to_those_there();
  for (auto at = idle_.begin(); at != idle_.end() && !draining_ && !free_.empty();) {
    const int worker = *at;
    const uint64_t lease = partition_.lease(worker);
    if (lease == 0 || !consistency_->may_begin(worker)) {
      ++at;
      continue;
    }
    at = idle_.erase(at);
    const SampleRange samples = *free_.take_about(lease, partition_.most(worker));
    partition_.lend(worker, samples.size());
    consistency_->begin(worker);
    lend(worker, samples);
  }
}

void Conductor::lend(int worker, SampleRange samples) {
  lent_[worker].push_back(samples);
  orders_.push_back(
      {.kind = Order::Kind::kLend, .worker = worker, .samples = samples, .pushes = {}});
}

void Conductor::lend_again() {
  for (auto at = idle_.begin(); at != idle_.end();) {
    const int worker = *at;
    const std::vector<int> others = consistency_->to_repeat();
    const auto slow = std::find_if(others.begin(), others.end(), [&](int other) {
      const double speed = partition_.speed(other);
      const double own = partition_.speed(worker);
      // Of who has not handed in anything it is known that many others have.
      return speed > 0 ? own > kMuchSlower * speed : own > 0 && idle_.size() >= lent_.size();
    });
    if (slow == others.end()) {
      ++at;
      continue;
    }
    at = idle_.erase(at);
    consistency_->repeat(worker, *slow);
    lend(worker, lent_.at(*slow).front());
  }
}

std::vector<Order> Conductor::go_on() {
  if (over_) return {};
  lend();
  obey(consistency_->look());
  lend();  // what waited for that update
  lend_again();
  over_ = lent_.empty() && waiting_.empty() && (draining_ || free_.empty());
  if (over_) orders_.push_back({});
  return std::exchange(orders_, {});
}

}  // namespace starling
