#include "collective/operation.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {
namespace {

std::string reason_of(const Fabric& fabric, const Transfer& transfer) {
  const char* deed = transfer.kind == Transfer::Kind::kSend ? "took" : "sent";
  if (transfer.pending()) return fmt::format("peer {} {} not all in time", transfer.peer, deed);
  switch (transfer.failure) {
    case FailureKind::kPeerGone:
      return describe_gone(fabric, transfer.peer);
    case FailureKind::kLength:
      return fmt::format("peer {} sent a message of another length", transfer.peer);
    case FailureKind::kStaleView:
      return fmt::format("the view changed while waiting for peer {}", transfer.peer);
    case FailureKind::kDeadline:
      return fmt::format("peer {} {} not all in time", transfer.peer, deed);
    case FailureKind::kClosed:
      break;
  }
  return fmt::format("this side was closed while waiting for peer {}", transfer.peer);
}

}  // namespace

Operation::Operation(const char* name, const Channel& channel)
    : name_(name), channel_(channel), started_(channel.fabric->now()) {}

Operation::State Operation::advance() {
  if (state_ != State::kPending) return state_;
  for (bool moved = true; moved && state_ == State::kPending;) {
    go_on();
    moved = false;
    if (state_ != State::kPending) break;
    for (const auto& stream : streams_) {
      moved |= stream->poll();
      if (!stream->failure()) continue;
      fail_transfer(*stream->failure());
      break;
    }
  }
  if (state_ != State::kPending) abandon();
  return state_;
}

void Operation::fail(FailureKind kind, int peer, const std::string& reason) {
  const std::chrono::duration<double, std::milli> elapsed = fabric().now() - started_;
  failure_ = {kind, peer,
              fmt::format("{} step={} rank={}: {}, {:.3g} ms after its start", name_, step(),
                          rank(), reason, elapsed.count())};
  state_ = State::kFailed;
  abandon();
}

void Operation::fail_as(const Operation& part) {
  failure_ = part.failure();
  state_ = State::kFailed;
}

void Operation::fail_transfer(const Transfer& transfer) {
  const FailureKind kind = transfer.pending() ? FailureKind::kDeadline : transfer.failure;
  const std::chrono::duration<double, std::milli> elapsed = fabric().now() - started_;
  failure_ = {kind, transfer.peer,
              fmt::format("{} step={} rank={}: {} after {:.3g} ms, {} of {} bytes", name_, step(),
                          rank(), reason_of(fabric(), transfer), elapsed.count(), transfer.bytes,
                          transfer.of_bytes)};
  state_ = State::kFailed;
}

void Operation::fail_late() {
  if (state_ != State::kPending) return;
  const std::optional<Transfer> late = waiting();
  if (!late) return fail(FailureKind::kDeadline, -1, "not done in time");
  fail_transfer(*late);
  abandon();
}

std::optional<Transfer> Operation::waiting() const {
  // A receive says who is late; a send that waits says only that its receiver does not take it.
  std::optional<Transfer> found;
  for (const auto& stream : streams_) {
    const std::optional<Transfer>& transfer = stream->waiting();
    if (transfer && (!found || transfer->kind != Transfer::Kind::kSend)) found = transfer;
    if (found && found->kind != Transfer::Kind::kSend) break;
  }
  return found;
}

size_t Operation::step() const {
  size_t done = messages_done_;
  for (const auto& stream : streams_) done += stream->done();
  return done;
}

Stream& Operation::add_stream(int peer, Tag offset, size_t count) {
  if (offset + count > kTagsPerOperation) {
    throw input_error(fmt::format("{} of too many messages", name_), "choose larger chunks");
  }
  streams_.push_back(std::make_unique<Stream>(
      fabric(),
      Stream::Options{
          .peer = peer, .tag = channel_.tag + offset, .count = count, .window = channel_.window}));
  return *streams_.back();
}

void Operation::clear_streams() {
  for (const auto& stream : streams_) messages_done_ += stream->done();
  streams_.clear();
}

}  // namespace starling
