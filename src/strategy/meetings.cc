#include "strategy/meetings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace starling {
namespace {

constexpr Tag kMeetingTag = Tag{13} << 56;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Meetings::Meetings(Fabric& fabric, std::span<float> weights) : fabric_(fabric), weights_(weights) {}

void Meetings::order(int rank, uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (own_.empty()) {
      own_ = Buffer<float>(weights_.size());
      theirs_ = Buffer<float>(weights_.size());
    }
    step_ = Step::kCalled;
  }
  rank_ = rank;
  number_ = number;
  // As early as can be: what comes before that is held by the fabric.
  receiving_ =
      fabric_.start_receive(rank_, kMeetingTag + number_, std::as_writable_bytes(theirs_.span()));
}

bool Meetings::advance() {
  const std::lock_guard lock(mutex_);
  const Step before = step_;
  if (rests_) look_locked();
  if (step_ == Step::kCopied) {
    sending_ = fabric_.start_send(rank_, kMeetingTag + number_,
                                  std::as_bytes(std::span<const float>(own_.span())));
    sent_at_ = fabric_.now();
    step_ = Step::kMoving;
  }
  if (step_ == Step::kMoving) {
    const bool sent = starling::is_over(fabric_, sending_, status_);
    const bool received = starling::is_over(fabric_, receiving_, status_);
    if (sent && received && status_) {
      step_ = Step::kCome;
      seconds_.hidden += std::chrono::duration<double>(fabric_.now() - sent_at_).count();
    }
  }
  if (rests_) look_locked();
  return step_ != before;
}

bool Meetings::is_over() const {
  const std::lock_guard lock(mutex_);
  return step_ == Step::kNone;
}

void Meetings::cancel() {
  fabric_.cancel(std::exchange(sending_, Ticket()));
  fabric_.cancel(std::exchange(receiving_, Ticket()));
  const std::lock_guard lock(mutex_);
  step_ = Step::kNone;
}

void Meetings::look() {
  const std::lock_guard lock(mutex_);
  if (step_ != Step::kCalled && step_ != Step::kCome) return;
  const auto begin = std::chrono::steady_clock::now();
  const bool called = step_ == Step::kCalled;
  look_locked();
  seconds_.exposed += seconds_since(begin);
  if (called) fabric_.wake();
}

void Meetings::look_locked() {
  if (step_ == Step::kCalled) {
    std::copy(weights_.begin(), weights_.end(), own_.begin());
    step_ = Step::kCopied;
  } else if (step_ == Step::kCome) {
    // Where one of the two is not finite both stay where they are: it must not spread.
    for (size_t i = 0; i < weights_.size(); ++i) {
      const float apart = theirs_[i] - own_[i];
      weights_[i] += std::abs(apart) <= std::numeric_limits<float>::max() ? 0.5f * apart : 0.0f;
    }
    ++count_;
    step_ = Step::kNone;
  }
}

void Meetings::rest(bool rests) {
  const std::lock_guard lock(mutex_);
  rests_ = rests;
}

uint64_t Meetings::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

Meetings::Seconds Meetings::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace starling
