#include "fabric/stream_fabric.h"

#include <algorithm>
#include <cstring>

namespace starling {
namespace {

constexpr size_t kScratchBytes = 64 << 10;
// What one link may read before the others get their turn.
constexpr size_t kReadBudgetBytes = 1 << 20;

}  // namespace

StreamFabric::StreamFabric(const Options& options, InPlaceSource* source)
    : FabricBase(options.rank, options.world, options.buffer_bytes_per_peer, source),
      message_bytes_most_(options.message_bytes_most),
      takes_in_place_(source != nullptr),
      links_(static_cast<size_t>(options.world)),
      offered_(static_cast<size_t>(options.world)),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(kScratchBytes)) {}

void StreamFabric::add_link(int peer, std::unique_ptr<ByteStream> stream) {
  Link link;
  link.peer = peer;
  link.stream = std::move(stream);
  links_[static_cast<size_t>(peer)].push_back(std::move(link));
}

std::span<StreamFabric::Link> StreamFabric::links_of(int peer) {
  if (links_.empty()) return {};
  return links_[static_cast<size_t>(peer)];
}

void StreamFabric::begin_send(Index slot) {
  const Transfer& transfer = table()[slot].transfer;
  if (transfer.of_bytes > message_bytes_most_) {
    return table().fail(slot, FailureKind::kLength);
  }
  if (transfer.peer == rank()) {
    to_self_.push(table(), slot);
    pump_self();
    return;
  }
  const std::span<Link> links = links_of(transfer.peer);
  Link& link = links[transfer.tag % links.size()];
  const bool first = link.queue.empty();
  link.queue.push(table(), slot);
  if (first) pump_out(link);
}

void StreamFabric::begin_frame(Link& link, Index slot) {
  const TransferTable::Slot& send = table()[slot];
  const std::optional<uint64_t> handle = offer_in_place(slot);
  link.begun = true;
  link.in_place = handle.has_value();
  link.sent = 0;
  link.head_bytes = kFrameHeaderBytes + (handle ? kHandleBytes : 0);
  write_frame_header({.kind = handle ? FrameKind::kInPlace : FrameKind::kMessage,
                      .length = send.transfer.of_bytes,
                      .tag = send.transfer.tag,
                      .view = send.view},
                     std::span(link.head).first<kFrameHeaderBytes>());
  if (handle) write_little_endian(&link.head[kFrameHeaderBytes], *handle, kHandleBytes);
}

void StreamFabric::end_frame(Link& link) {
  const Index slot = link.queue.pop(table());
  link.begun = false;
  if (link.in_place && !table()[slot].orphan) {
    offered_[static_cast<size_t>(link.peer)].push(table(), slot);
    ++offered_count_;
  } else if (table()[slot].orphan) {
    table().release(slot);
  } else {
    finish_send(slot);
  }
}

bool StreamFabric::pump_out(Link& link) {
  bool moved = false;
  while (!link.lost && !link.queue.empty()) {
    const Index slot = link.queue.head();
    if (!link.begun) begin_frame(link, slot);
    TransferTable::Slot& send = table()[slot];
    const size_t body_bytes = link.in_place ? 0 : send.transfer.of_bytes;
    const size_t head_sent = std::min(link.sent, link.head_bytes);
    const size_t body_sent = link.sent - head_sent;
    const ptrdiff_t wrote = link.stream->write(
        std::span<const std::byte>(link.head).subspan(head_sent, link.head_bytes - head_sent),
        std::span(send.source, body_bytes).subspan(body_sent));
    if (wrote == ByteStream::kLost) {
      lose_link(link);
      return true;
    }
    if (wrote == 0) break;
    moved = true;
    link.sent += static_cast<size_t>(wrote);
    if (link.sent > link.head_bytes) send.transfer.bytes = link.sent - link.head_bytes;
    if (link.sent == link.head_bytes + body_bytes) end_frame(link);
  }
  return moved;
}

// Reads the head of a frame, and lets the mailbox take it.
StreamFabric::Head StreamFabric::read_head(Link& link, bool& moved) {
  std::optional<FrameHeader> header;
  while (true) {
    size_t wanted = kFrameHeaderBytes;
    if (link.head_in_got >= kFrameHeaderBytes) {
      header = parse_frame_header(std::span(link.head_in).first<kFrameHeaderBytes>(),
                                  message_bytes_most_);
      if (!header || (header->kind == FrameKind::kInPlace && !takes_in_place_)) {
        lose(link.peer, "sent what is not a frame");
        return Head::kLost;
      }
      if (header->kind == FrameKind::kInPlace) wanted += kHandleBytes;
    }
    if (link.head_in_got == wanted) break;
    const ptrdiff_t got = link.stream->read(
        std::span(link.head_in).subspan(link.head_in_got, wanted - link.head_in_got));
    if (got == ByteStream::kLost) {
      lose_link(link);
      return Head::kLost;
    }
    if (got == 0) return Head::kPartial;
    moved = true;
    link.head_in_got += static_cast<size_t>(got);
  }
  if (header->kind == FrameKind::kInPlace) {
    link.head_in_got = 0;
    mailbox().arrive_in_place(link.peer, header->tag, header->view, header->length,
                              read_little_endian(&link.head_in[kFrameHeaderBytes], kHandleBytes));
    return Head::kTaken;
  }
  link.message = mailbox().begin(link.peer, header->tag, header->view, header->length);
  if (!link.message) return Head::kHeld;
  link.head_in_got = 0;
  return Head::kTaken;
}

bool StreamFabric::pump_in(Link& link) {
  bool moved = false;
  for (size_t budget = kReadBudgetBytes; budget > 0 && !link.lost;) {
    if (!link.message) {
      const Head head = read_head(link, moved);
      // A peer that has ended while its message is held back can't be waited for any longer.
      if (head == Head::kHeld && link.stream->ended()) lose(link.peer, link.stream->why_lost());
      if (head != Head::kTaken) return moved;
      if (!link.message) continue;  // it was in place
    }
    size_t got = 0;
    if (const size_t left = link.message->left(); left > 0) {
      const bool kept = link.message->target != nullptr;
      const ptrdiff_t read =
          kept ? link.stream->read({link.message->place(), std::min(left, budget)})
               : link.stream->read({scratch_.get(), std::min({left, budget, kScratchBytes})});
      if (read == ByteStream::kLost) {
        lose_link(link);
        return moved;
      }
      if (read == 0) return moved;
      got = static_cast<size_t>(read);
    }
    moved = true;
    budget -= std::min(budget, got);
    if (mailbox().advance(link.message, got)) link.message = nullptr;
  }
  return moved;
}

// The link broke. What came whole over it, or over others of the peer, is taken first. A peer that
// closed its links in order may still have bytes on their way over the others: it is gone when all
// have ended.
void StreamFabric::lose_link(Link& link) {
  link.ended = true;
  if (link.draining) return;
  const std::span<Link> links = links_of(link.peer);
  const std::string why = link.stream->why_lost();
  for (Link& any : links) any.draining = true;
  for (Link& any : links) {
    while (!any.lost && pump_in(any)) {
    }
  }
  for (Link& any : links) any.draining = false;
  const bool all_ended =
      std::all_of(links.begin(), links.end(), [](const Link& any) { return any.ended; });
  if (all_ended || !link.stream->ended_in_order()) lose(link.peer, why);
}

bool StreamFabric::pump_self() {
  bool moved = false;
  while (!to_self_.empty()) {
    const Index slot = to_self_.head();
    const TransferTable::Slot& send = table()[slot];
    const size_t length = send.transfer.of_bytes;
    Incoming* message = mailbox().begin(rank(), send.transfer.tag, send.view, length);
    if (!message) break;
    if (message->target && length > 0) std::memcpy(message->place(), send.source, length);
    mailbox().advance(message, length);
    to_self_.pop(table());
    finish_send(slot);
    moved = true;
  }
  return moved;
}

bool StreamFabric::collect_taken() {
  bool moved = false;
  for (SlotList& list : offered_) {
    for (Index at = list.head(); at != TransferTable::kNone;) {
      const Index next = table()[at].next;
      if (was_taken(at)) {
        list.remove(table(), at);
        --offered_count_;
        finish_send(at);
        moved = true;
      }
      at = next;
    }
  }
  return moved;
}

bool StreamFabric::pump() {
  bool moved = pump_self();
  if (offered_count_ > 0) moved |= collect_taken();
  for (auto& links : links_) {
    for (Link& link : links) {
      if (link.lost) continue;
      moved |= pump_in(link);
      if (!link.queue.empty()) moved |= pump_out(link);
    }
  }
  return moved;
}

bool StreamFabric::progress(Instant deadline) {
  while (true) {
    if (!closed()) look_around();
    const bool moved = closed() ? false : pump();
    if (table().take_changed()) return true;
    if (woken_.load(std::memory_order_relaxed) && woken_.exchange(false)) return true;
    const Instant at = now();
    if (moved || idle_since_ == Instant{}) idle_since_ = at;
    if (at >= deadline || closed()) {
      idle_since_ = {};
      return false;
    }
    if (!moved) idle(deadline, at, idle_since_);
  }
}

void StreamFabric::wake() {
  woken_.store(true);
  interrupt();
}

// Takes a send out of its queue. If its frame is begun, an orphan with a copy of what is left takes
// its place, so that the frame can be ended without the caller's memory.
void StreamFabric::detach_send(Link& link, Index slot) {
  if (!link.begun || link.queue.head() != slot) {
    link.queue.remove(table(), slot);
    return;
  }
  const Transfer& transfer = table()[slot].transfer;
  const Index rest =
      table().add(transfer.kind, transfer.peer, transfer.tag, transfer.of_bytes, transfer.started);
  table()[rest].orphan = true;
  if (link.in_place) {
    take_back(slot);
  } else if (const size_t length = transfer.of_bytes, done = transfer.bytes; length > done) {
    table()[rest].owned = std::make_unique_for_overwrite<std::byte[]>(length);
    table()[rest].source = table()[rest].owned.get();
    std::memcpy(table()[rest].owned.get() + done, table()[slot].source + done, length - done);
  }
  link.queue.replace_head(table(), rest);
}

void StreamFabric::cancel_send(Index slot) {
  const int peer = table()[slot].transfer.peer;
  if (peer == rank()) {
    to_self_.remove(table(), slot);
  } else if (offered_[static_cast<size_t>(peer)].remove(table(), slot)) {
    --offered_count_;
    take_back(slot);
  } else {
    const std::span<Link> links = links_of(peer);
    detach_send(links[table()[slot].transfer.tag % links.size()], slot);
  }
  table().release(slot);
}

void StreamFabric::fail_sends(int peer, FailureKind failure) {
  if (peer == rank()) {
    while (!to_self_.empty()) table().fail(to_self_.pop(table()), failure);
    return;
  }
  SlotList& offered = offered_[static_cast<size_t>(peer)];
  while (!offered.empty()) {
    const Index slot = offered.pop(table());
    --offered_count_;
    take_back(slot);
    table().fail(slot, failure);
  }
  // In a new view the stream goes on, and a frame that was begun has to be ended.
  const bool goes_on = failure == FailureKind::kStaleView;
  for (Link& link : links_of(peer)) {
    SlotList kept;
    if (link.begun) {
      const Index slot = link.queue.head();
      const bool orphan = table()[slot].orphan;
      if (!orphan) detach_send(link, slot);
      kept.push(table(), link.queue.pop(table()));
      if (!orphan) table().fail(slot, failure);
    }
    while (!link.queue.empty()) table().fail(link.queue.pop(table()), failure);
    if (goes_on) {
      link.queue = kept;
      continue;
    }
    while (!kept.empty()) table().release(kept.pop(table()));
    link.begun = false;
    link.lost = true;
    link.message = nullptr;
    link.stream->hang_up();
  }
}

}  // namespace starling
