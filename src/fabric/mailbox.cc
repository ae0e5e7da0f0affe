#include "fabric/mailbox.h"

#include <algorithm>
#include <cstring>

namespace starling {
namespace {

// Buffers up to this size are kept for the next message; larger ones are given back.
constexpr size_t kKeptBufferBytes = 64 << 10;

void erase_value(std::vector<Incoming*>& messages, Incoming* message) {
  const auto found = std::find(messages.begin(), messages.end(), message);
  if (found != messages.end()) messages.erase(found);
}

// memcpy wants no null pointers, even for nothing.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

Mailbox::Mailbox(TransferTable& table, std::vector<Counters>& counters, int rank,
                 size_t buffer_bytes_per_peer, InPlaceSource* source)
    : table_(table),
      counters_(counters),
      rank_(rank),
      buffer_bytes_per_peer_(buffer_bytes_per_peer),
      source_(source),
      posted_(counters.size()),
      gone_(counters.size()),
      buffered_bytes_(counters.size()) {}

void Mailbox::post(Index slot) {
  const Transfer wanted = table_[slot].transfer;
  for (size_t i = 0; i < buffered_.size();) {
    Incoming* message = buffered_[i];
    const bool fits = message->tag == wanted.tag && message->view == view_ &&
                      (wanted.peer == kAnyPeer || wanted.peer == message->peer);
    if (!fits) {
      ++i;
      continue;
    }
    forget_buffered(message);
    if (give(message, slot)) return;
    // It was taken back by its sender: the next one, which has moved to this place.
  }
  if (wanted.peer == kAnyPeer ? all_gone() : gone_[static_cast<size_t>(wanted.peer)]) {
    return table_.fail(slot, FailureKind::kPeerGone);
  }
  (wanted.peer == kAnyPeer ? posted_any_ : posted_[static_cast<size_t>(wanted.peer)])
      .push(table_, slot);
}

void Mailbox::cancel(Index slot) {
  const int peer = table_[slot].transfer.peer;
  for (Incoming* message : arriving_) {
    if (message->slot != slot) continue;
    message->slot = TransferTable::kNone;
    message->drop = true;
    message->target = nullptr;
    return;
  }
  if (peer != kAnyPeer && posted_[static_cast<size_t>(peer)].remove(table_, slot)) return;
  posted_any_.remove(table_, slot);
}

// The receive that the message is for, taken from its list, or kNone.
Mailbox::Index Mailbox::match(const Incoming& message) {
  if (message.view != view_) return TransferTable::kNone;
  const auto find = [&](const SlotList& list) {
    Index at = list.head();
    while (at != TransferTable::kNone && table_[at].transfer.tag != message.tag) {
      at = table_[at].next;
    }
    return at;
  };
  SlotList& own = posted_[static_cast<size_t>(message.peer)];
  const Index named = find(own), any = find(posted_any_);
  if (named == TransferTable::kNone && any == TransferTable::kNone) return TransferTable::kNone;
  const bool take_named = any == TransferTable::kNone || (named != TransferTable::kNone &&
                                                          table_[named].order < table_[any].order);
  const Index slot = take_named ? named : any;
  (take_named ? own : posted_any_).remove(table_, slot);
  return slot;
}

Incoming* Mailbox::begin(int peer, Tag tag, uint64_t view, size_t length) {
  const size_t from = static_cast<size_t>(peer);
  const Incoming probe{.peer = peer, .tag = tag, .view = view, .length = length};
  if (view >= view_) {
    const Index slot = match(probe);
    if (slot == TransferTable::kNone) {
      if (buffered_bytes_[from] + length > buffer_bytes_per_peer_) return nullptr;
      Incoming* message = take_blank(peer, tag, view, length);
      if (message->capacity < length) {
        message->buffer = std::make_unique_for_overwrite<std::byte[]>(length);
        message->capacity = length;
      }
      message->target = message->buffer.get();
      buffered_bytes_[from] += length;
      buffered_.push_back(message);
      arriving_.push_back(message);
      return message;
    }
    Incoming* message = take_blank(peer, tag, view, length);
    arriving_.push_back(message);
    give(message, slot);
    return message;
  }
  Incoming* message = take_blank(peer, tag, view, length);
  message->drop = true;
  arriving_.push_back(message);
  return message;
}

// Hands a message, whole or arriving, to a receive. False if the message was taken back, and is no
// more; the receive still waits then. A message of the wrong length fails the receive.
bool Mailbox::give(Incoming* message, Index slot) {
  TransferTable::Slot& receive = table_[slot];
  const bool arriving = std::find(arriving_.begin(), arriving_.end(), message) != arriving_.end();
  receive.transfer.peer = message->peer;
  const size_t capacity = receive.transfer.of_bytes;
  const bool fits = receive.transfer.kind == Transfer::Kind::kReceive ? message->length == capacity
                                                                      : message->length <= capacity;
  if (!fits) {
    receive.transfer.bytes = message->length;
    table_.fail(slot, FailureKind::kLength);
    if (message->in_place) source_->discard(message->peer, message->handle);
    message->drop = true;
    message->target = nullptr;
    if (!arriving) recycle(message);
    return true;
  }
  if (message->in_place) {
    const bool there =
        source_->fetch(message->peer, message->handle, {receive.target, message->length});
    if (there) finish_receive(slot, *message);
    recycle(message);
    return there;
  }
  copy_bytes(receive.target, message->target, message->received);
  if (!arriving) {
    finish_receive(slot, *message);
    recycle(message);
    return true;
  }
  message->slot = slot;
  message->target = receive.target;
  receive.transfer.bytes = message->received;
  return true;
}

void Mailbox::finish_receive(Index slot, const Incoming& message) {
  Counters& counters = counters_[static_cast<size_t>(message.peer)];
  counters.bytes_received += message.length;
  counters.messages_received += 1;
  table_.finish(slot, message.length);
}

bool Mailbox::advance(Incoming* message, size_t bytes) {
  message->received += bytes;
  if (message->slot != TransferTable::kNone) {
    table_[message->slot].transfer.bytes = message->received;
  }
  if (message->left() != 0) return false;
  erase_value(arriving_, message);
  if (message->slot != TransferTable::kNone) {
    finish_receive(message->slot, *message);
    recycle(message);
  } else if (message->drop) {
    recycle(message);
  }
  return true;
}

void Mailbox::arrive_in_place(int peer, Tag tag, uint64_t view, size_t length, uint64_t handle) {
  if (view < view_) return source_->discard(peer, handle);
  Incoming* message = take_blank(peer, tag, view, length);
  message->received = length;
  message->in_place = true;
  message->handle = handle;
  const Index slot = match(*message);
  if (slot == TransferTable::kNone) {
    buffered_.push_back(message);
  } else if (!give(message, slot)) {
    post(slot);
  }
}

void Mailbox::enter_view(uint64_t view) {
  view_ = view;
  for (SlotList& list : posted_) fail_list(list, FailureKind::kStaleView);
  fail_list(posted_any_, FailureKind::kStaleView);
  for (Incoming* message : arriving_) {
    if (message->slot != TransferTable::kNone) {
      table_.fail(message->slot, FailureKind::kStaleView);
      message->slot = TransferTable::kNone;
      message->drop = true;
      message->target = nullptr;
    }
  }
  const std::vector<Incoming*> waiting = buffered_;
  for (Incoming* message : waiting) {
    if (message->view >= view_) continue;
    forget_buffered(message);
    message->drop = true;
    message->target = nullptr;
    if (message->left() != 0) continue;  // the rest of it is still to be read
    if (message->in_place) source_->discard(message->peer, message->handle);
    erase_value(arriving_, message);
    recycle(message);
  }
}

void Mailbox::peer_gone(int peer) {
  gone_[static_cast<size_t>(peer)] = true;
  const std::vector<Incoming*> arriving = arriving_;
  for (Incoming* message : arriving) {
    if (message->peer != peer) continue;
    if (message->slot != TransferTable::kNone) {
      table_.fail(message->slot, FailureKind::kPeerGone);
    } else if (!message->drop) {
      forget_buffered(message);
    }
    erase_value(arriving_, message);
    recycle(message);
  }
  fail_list(posted_[static_cast<size_t>(peer)], FailureKind::kPeerGone);
  if (all_gone()) fail_list(posted_any_, FailureKind::kPeerGone);
}

void Mailbox::close() {
  for (SlotList& list : posted_) fail_list(list, FailureKind::kClosed);
  fail_list(posted_any_, FailureKind::kClosed);
  for (Incoming* message : arriving_) {
    if (message->slot != TransferTable::kNone) table_.fail(message->slot, FailureKind::kClosed);
  }
  // Messages in place are not acknowledged: their senders will see this rank gone.
  arriving_.clear();
  buffered_.clear();
  blank_.clear();
  all_.clear();
  std::fill(buffered_bytes_.begin(), buffered_bytes_.end(), 0);
}

Incoming* Mailbox::take_blank(int peer, Tag tag, uint64_t view, size_t length) {
  if (blank_.empty()) {
    all_.push_back(std::make_unique<Incoming>());
    blank_.push_back(all_.back().get());
  }
  Incoming* message = blank_.back();
  blank_.pop_back();
  message->peer = peer;
  message->tag = tag;
  message->view = view;
  message->length = length;
  return message;
}

void Mailbox::recycle(Incoming* message) {
  if (message->capacity > kKeptBufferBytes) {
    message->buffer.reset();
    message->capacity = 0;
  }
  *message = {.buffer = std::move(message->buffer), .capacity = message->capacity};
  blank_.push_back(message);
}

void Mailbox::forget_buffered(Incoming* message) {
  if (!message->in_place) buffered_bytes_[static_cast<size_t>(message->peer)] -= message->length;
  erase_value(buffered_, message);
}

void Mailbox::fail_list(SlotList& list, FailureKind failure) {
  while (!list.empty()) table_.fail(list.pop(table_), failure);
}

// A rank that is alone has itself to hear from.
bool Mailbox::all_gone() const {
  bool others = false;
  for (size_t peer = 0; peer < gone_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    others = true;
    if (!gone_[peer]) return false;
  }
  return others;
}

}  // namespace starling
