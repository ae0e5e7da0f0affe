#include "fabric/fabric.h"

#include <fmt/format.h>

namespace starling {

Counters Fabric::counters() const {
  Counters sum;
  for (int peer = 0; peer < world(); ++peer) {
    const Counters one = counters(peer);
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
    sum.messages_sent += one.messages_sent;
    sum.messages_received += one.messages_received;
  }
  return sum;
}

std::string describe_gone(const Fabric& fabric, int peer) {
  std::string text = fmt::format("peer {} {}", peer, fabric.why_gone(peer));
  constexpr int kMost = 4;  // others that are named
  int others = 0;
  for (int other = 0; other < fabric.world() && others < kMost; ++other) {
    if (other == peer || other == fabric.rank() || !fabric.gone(other)) continue;
    text += fmt::format("{}peer {}", others == 0 ? " (gone, too: " : ", ", other);
    ++others;
  }
  return others == 0 ? text : text + ")";
}

namespace {

std::string reason_of(const Fabric& fabric, const Transfer& transfer, FailureKind kind) {
  const std::string peer =
      transfer.peer == kAnyPeer ? std::string("any peer") : fmt::format("peer {}", transfer.peer);
  switch (kind) {
    case FailureKind::kPeerGone:
      return transfer.peer == kAnyPeer ? "all peers are gone"
                                       : describe_gone(fabric, transfer.peer);
    case FailureKind::kDeadline:
      return fmt::format("{} {} in time", peer,
                         transfer.kind == Transfer::Kind::kSend ? "took not all" : "sent not all");
    case FailureKind::kStaleView:
      return peer + ": the view has changed";
    case FailureKind::kLength:
      return peer + " sent a message of another length";
    case FailureKind::kClosed:
      return peer + ": this side was closed";
  }
  return peer;
}

}  // namespace

Failure describe_failure(const Fabric& fabric, const Transfer& transfer) {
  const FailureKind kind = transfer.failed() ? transfer.failure : FailureKind::kDeadline;
  const std::chrono::duration<double, std::milli> elapsed = fabric.now() - transfer.started;
  return {kind, transfer.peer,
          fmt::format("{} rank={} tag={}: {} after {:.3g} ms, {} of {} bytes",
                      transfer.kind == Transfer::Kind::kSend ? "send" : "receive", fabric.rank(),
                      transfer.tag, reason_of(fabric, transfer, kind), elapsed.count(),
                      transfer.bytes, transfer.of_bytes)};
}

bool is_over(Fabric& fabric, Ticket& ticket, Status& status) {
  if (!ticket) return true;
  const Transfer transfer = fabric.poll(ticket);
  if (transfer.pending()) return false;
  ticket = Ticket();
  if (transfer.failed() && status) status = describe_failure(fabric, transfer);
  return true;
}

Result<size_t> wait(Fabric& fabric, Ticket ticket, Instant deadline) {
  while (true) {
    const Transfer transfer = fabric.poll(ticket);
    if (transfer.done()) return transfer.bytes;
    if (transfer.failed()) return describe_failure(fabric, transfer);
    if (!fabric.progress(deadline) && fabric.now() >= deadline) {
      const Transfer last = fabric.poll(ticket);
      if (last.done()) return last.bytes;
      if (last.pending()) fabric.cancel(ticket);
      return describe_failure(fabric, last);
    }
  }
}

Status send(Fabric& fabric, int peer, Tag tag, std::span<const std::byte> bytes, Instant deadline) {
  const Result<size_t> sent = wait(fabric, fabric.start_send(peer, tag, bytes), deadline);
  return sent.ok() ? Status() : Status(sent.failure());
}

Status receive(Fabric& fabric, int peer, Tag tag, std::span<std::byte> bytes, Instant deadline) {
  const Result<size_t> got = wait(fabric, fabric.start_receive(peer, tag, bytes), deadline);
  return got.ok() ? Status() : Status(got.failure());
}

Result<size_t> receive_up_to(Fabric& fabric, int peer, Tag tag, std::span<std::byte> bytes,
                             Instant deadline) {
  return wait(fabric, fabric.start_receive_up_to(peer, tag, bytes), deadline);
}

}  // namespace starling
