#include "fabric/fabric_base.h"

#include <fmt/format.h>

#include <stdexcept>

namespace starling {
namespace {

int checked_rank(int rank, int world) {
  if (rank < 0 || rank >= world) {
    throw std::logic_error(fmt::format("rank {} in a world of {}", rank, world));
  }
  return rank;
}

}  // namespace

FabricBase::FabricBase(int rank, int world, size_t buffer_bytes_per_peer, InPlaceSource* source)
    : rank_(checked_rank(rank, world)),
      world_(world),
      counters_(static_cast<size_t>(world)),
      mailbox_(table_, counters_, rank, buffer_bytes_per_peer, source),
      why_gone_(static_cast<size_t>(world)) {}

void FabricBase::require_peer(int peer) const {
  if (peer < 0 || peer >= world_) {
    throw std::logic_error(
        fmt::format("rank {}: no peer {} in a world of {}", rank_, peer, world_));
  }
}

Ticket FabricBase::start_send(int peer, Tag tag, std::span<const std::byte> bytes) {
  require_peer(peer);
  before_start();
  const Index slot = table_.add(Transfer::Kind::kSend, peer, tag, bytes.size(), now());
  const Ticket ticket = table_.ticket(slot);
  table_[slot].source = bytes.data();
  table_[slot].view = view();
  if (closed_) {
    table_.fail(slot, FailureKind::kClosed);
  } else if (gone(peer)) {
    table_.fail(slot, FailureKind::kPeerGone);
  } else {
    begin_send(slot);
  }
  return ticket;
}

Ticket FabricBase::start_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  require_peer(peer);
  return begin_receive(Transfer::Kind::kReceive, peer, tag, bytes);
}

Ticket FabricBase::start_receive_up_to(int peer, Tag tag, std::span<std::byte> bytes) {
  if (peer != kAnyPeer) require_peer(peer);
  return begin_receive(Transfer::Kind::kReceiveUpTo, peer, tag, bytes);
}

Ticket FabricBase::begin_receive(Transfer::Kind kind, int peer, Tag tag,
                                 std::span<std::byte> bytes) {
  before_start();
  const Index slot = table_.add(kind, peer, tag, bytes.size(), now());
  const Ticket ticket = table_.ticket(slot);
  table_[slot].target = bytes.data();
  if (closed_) {
    table_.fail(slot, FailureKind::kClosed);
  } else {
    mailbox_.post(slot);
  }
  return ticket;
}

Transfer FabricBase::poll(Ticket ticket) {
  if (!ticket) return {};
  const Index slot = table_.find(ticket);
  const Transfer transfer = table_[slot].transfer;
  if (!transfer.pending()) table_.release(slot);
  return transfer;
}

void FabricBase::cancel(Ticket ticket) {
  if (!ticket) return;
  const Index slot = table_.find(ticket);
  const Transfer& transfer = table_[slot].transfer;
  if (!transfer.pending()) {
    table_.release(slot);
  } else if (transfer.kind == Transfer::Kind::kSend) {
    cancel_send(slot);
  } else {
    mailbox_.cancel(slot);
    table_.release(slot);
  }
}

bool FabricBase::gone(int peer) const {
  require_peer(peer);
  return !why_gone_[static_cast<size_t>(peer)].empty();
}

std::string FabricBase::why_gone(int peer) const {
  require_peer(peer);
  return why_gone_[static_cast<size_t>(peer)];
}

void FabricBase::mark_gone(int peer) {
  require_peer(peer);
  lose(peer, "was reported lost");
}

void FabricBase::lose(int peer, std::string why) {
  if (closed_ || peer == rank_ || gone(peer)) return;
  why_gone_[static_cast<size_t>(peer)] = std::move(why);
  fail_sends(peer, FailureKind::kPeerGone);
  mailbox_.peer_gone(peer);
  table_.note_change();
}

void FabricBase::enter_view(uint64_t view) {
  if (view < mailbox_.view()) {
    throw std::logic_error(
        fmt::format("rank {}: view {} after view {}", rank_, view, mailbox_.view()));
  }
  if (view == mailbox_.view() || closed_) return;
  for (int peer = 0; peer < world_; ++peer) fail_sends(peer, FailureKind::kStaleView);
  mailbox_.enter_view(view);
  table_.note_change();
}

void FabricBase::close() {
  if (closed_) return;
  for (int peer = 0; peer < world_; ++peer) fail_sends(peer, FailureKind::kClosed);
  mailbox_.close();
  closed_ = true;
  end_links();
  table_.note_change();
}

Counters FabricBase::counters(int peer) const {
  require_peer(peer);
  return counters_[static_cast<size_t>(peer)];
}

void FabricBase::finish_send(Index slot) {
  Counters& counters = counters_[static_cast<size_t>(table_[slot].transfer.peer)];
  counters.bytes_sent += table_[slot].transfer.of_bytes;
  counters.messages_sent += 1;
  table_.finish(slot, table_[slot].transfer.of_bytes);
}

}  // namespace starling
