#include "cluster/membership.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "param/orders_words.h"

namespace starling {
namespace {

constexpr std::chrono::seconds kSendWait{60};  // the launcher may have been stopped for a while
// That a worker lives on after its launcher: longer than the guardian would let it.
constexpr std::chrono::seconds kOutlives{15};

}  // namespace

Membership::Membership(Socket socket)
    : socket_(std::move(socket)), thread_("starling-beat", [this](int quit) { listen(quit); }) {
  beat();  // the other thread may not have come to it when this one freezes
}

void Membership::beat() const {
  ControlMessage message;
  message.progress = progress_.load(std::memory_order_relaxed);
  message.step = step_.load(std::memory_order_relaxed);
  message.steps = steps_.load(std::memory_order_relaxed);
  send_control(socket_.fd(), message);
}

void Membership::listen(int quit) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto beat_at = now();
  bool ended = false;
  while (!ended) {
    if (now() >= beat_at) {
      if (waits_.load(std::memory_order_relaxed) > 0) note_progress();
      beat();
      beat_at = now() + kBeatEvery;
    }
    pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {quit, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(beat_at - now()).count();
    if (poll(polled, 2, static_cast<int>(std::max<long>(left, 0))) <= 0) continue;
    if (polled[1].revents != 0) return;
    ended = take_messages();
  }
  // The guardian may have died with the launcher, and the worker's own thread may be stuck.
  const auto end = now() + kOutlives;
  while (now() < end) {
    pollfd polled{quit, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    if (poll(&polled, 1, static_cast<int>(left)) > 0) return;
  }
  kill(getpid(), SIGKILL);
}

bool Membership::take_messages() {
  bool ended = false;
  while (auto message = receive_control(socket_.fd(), ended)) {
    const std::lock_guard lock(mutex_);
    if (message->kind == ControlMessage::Kind::kChange) {
      change_in_ = message->commit.view;  // which it may be about to enter
      wants_change_ = change_in_ == view_;
      continue;
    }
    if (message->kind == ControlMessage::Kind::kOrders) {
      auto orders = orders_of(message->words);
      if (message->commit.view != view_ || !orders) continue;
      std::move(orders->begin(), orders->end(), std::back_inserter(orders_));
      if (wake_) wake_();
      continue;
    }
    if (message->commit.kind == commit::Message::Kind::kPrepare) {
      prepared_ = std::max(prepared_, message->commit.view);
      interrupted_ = prepared_ > view_;
      if (wake_) wake_();
    }
    inbox_.push_back(std::move(*message));
  }
  const std::lock_guard lock(mutex_);
  ended_ = ended;
  if (ended && wake_) wake_();
  arrived_.notify_all();
  return ended;
}

void Membership::wake_by(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void Membership::enter(int64_t view) {
  const std::lock_guard lock(mutex_);
  view_ = view;
  interrupted_ = prepared_ > view_;
  wants_change_ = change_in_ == view_;
}

std::vector<Order> Membership::take_orders() {
  const std::lock_guard lock(mutex_);
  return std::exchange(orders_, {});
}

void Membership::forget_orders() {
  const std::lock_guard lock(mutex_);
  orders_.clear();
}

std::optional<ControlMessage> Membership::next(Instant deadline) {
  std::unique_lock lock(mutex_);
  arrived_.wait_until(lock, deadline, [&] { return !inbox_.empty() || ended_; });
  if (inbox_.empty()) return std::nullopt;
  ControlMessage message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

bool Membership::send(ControlMessage message) {
  message.commit.view = view_;
  message.step = step_.load(std::memory_order_relaxed);
  message.steps = steps_.load(std::memory_order_relaxed);
  return deliver(message);
}

bool Membership::send(const commit::Message& message) {
  ControlMessage control;
  control.kind = ControlMessage::Kind::kCommit;
  control.commit = message;
  return deliver(control);
}

bool Membership::deliver(const ControlMessage& message) const {
  const Instant deadline = std::chrono::steady_clock::now() + kSendWait;
  while (!send_control(socket_.fd(), message)) {  // the launcher has much to read just now
    pollfd polled{socket_.fd(), POLLOUT, 0};
    poll(&polled, 1, 10);
    if ((polled.revents & (POLLERR | POLLHUP)) != 0) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
  return true;
}

}  // namespace starling
