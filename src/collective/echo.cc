#include "collective/echo.h"

#include <algorithm>
#include <array>

namespace starling {
namespace {

struct Size {
  size_t bytes;
  size_t messages;  // at most
};
constexpr std::array<Size, 3> kSizes = {{{8, 8}, {64 << 10, 6}, {1 << 20, 4}}};
constexpr size_t kMessages = kSizes[0].messages + kSizes[1].messages + kSizes[2].messages;
// After this time a link has no further message, but for the first of the second size.
constexpr std::chrono::milliseconds kLinkTime{20};
constexpr std::byte kMore{0}, kLast{1};

// Of a link's message by its number.
size_t bytes_of(size_t number) {
  size_t kind = 0;
  for (; number >= kSizes[kind].messages; ++kind) number -= kSizes[kind].messages;
  return kSizes[kind].bytes;
}

}  // namespace

Echo::Echo(const Channel& channel, LinkCosts& costs)
    : Operation("echo", channel),
      costs_(costs),
      costs_before_(costs),
      out_(kSizes.back().bytes),
      in_(kSizes.back().bytes) {
  if (world() == 1) return;
  begin_link(rank() == 0 ? 1 : 0);
}

void Echo::begin_link(int peer) {
  clear_streams();
  times_.clear();
  peer_ = peer;
  link_began_ = fabric().now();
  send_ = &add_stream(peer, 0, kMessages);
  receive_ = &add_stream(peer, 0, kMessages);
}

void Echo::measure() {
  if (world() == 1) return finish();
  while (true) {
    if (send_->done() < send_->started() || receive_->done() < receive_->started()) return;
    if (receive_->done() > 0) note_time();
    if (receive_->done() > 0 && out_[0] == kLast) {
      const LinkCosts link = fit_costs(times_, costs_before_);
      costs_ = peer_ == 1 ? link : slower_of(costs_, link);
      if (peer_ + 1 == world()) return finish();
      begin_link(peer_ + 1);
    }
    send_next();
  }
}

void Echo::send_next() {
  const size_t number = send_->started(), bytes = bytes_of(number);
  sent_ = fabric().now();
  const bool late = sent_ - link_began_ >= kLinkTime && number >= kSizes[0].messages;
  out_[0] = late || number + 1 == kMessages ? kLast : kMore;
  receive_->receive(std::span(in_).first(bytes));
  send_->send(std::span(out_).first(bytes));
}

void Echo::note_time() {
  const std::chrono::duration<double> there_and_back = fabric().now() - sent_;
  const LinkTime time{bytes_of(receive_->done() - 1), there_and_back.count() / 2};
  if (times_.empty() || times_.back().bytes != time.bytes) times_.push_back(time);
  times_.back().seconds = std::min(times_.back().seconds, time.seconds);
}

void Echo::answer() {
  const size_t answered = send_->done();
  if (send_->started() > answered) return;
  const bool waits = receive_->started() > answered;
  if (!waits && answered > 0 && in_[0] == kLast) return finish();
  const auto message = std::span(in_).first(bytes_of(answered));
  if (!waits) receive_->receive(message);
  if (receive_->done() > answered) send_->send(message);
}

}  // namespace starling
