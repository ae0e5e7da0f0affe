#include "fabric/transfer_table.h"

#include <stdexcept>
#include <utility>

namespace starling {

TransferTable::Index TransferTable::add(Transfer::Kind kind, int peer, Tag tag, size_t bytes,
                                        Instant now) {
  Index index = free_;
  if (index == kNone) {
    index = static_cast<Index>(slots_.size());
    slots_.emplace_back();
  } else {
    free_ = slots_[index].next;
  }
  Slot& slot = slots_[index];
  slot.transfer = {.state = Transfer::State::kPending,
                   .kind = kind,
                   .peer = peer,
                   .tag = tag,
                   .of_bytes = bytes,
                   .started = now};
  slot.source = nullptr;
  slot.target = nullptr;
  slot.order = ++started_;
  slot.next = kNone;
  slot.used = true;
  slot.orphan = false;
  return index;
}

Ticket TransferTable::ticket(Index index) const {
  Ticket ticket;
  ticket.slot_ = index;
  ticket.generation_ = slots_[index].generation;
  return ticket;
}

TransferTable::Index TransferTable::find(Ticket ticket) const {
  const bool known = ticket.slot_ < slots_.size() && slots_[ticket.slot_].used &&
                     slots_[ticket.slot_].generation == ticket.generation_;
  if (!known) throw std::logic_error("a transfer was polled or cancelled after its end was told");
  return ticket.slot_;
}

void TransferTable::finish(Index index, size_t bytes) {
  if (slots_[index].orphan) return release(index);
  slots_[index].transfer.state = Transfer::State::kDone;
  slots_[index].transfer.bytes = bytes;
  changed_ = true;
}

void TransferTable::fail(Index index, FailureKind failure) {
  if (slots_[index].orphan) return release(index);
  slots_[index].transfer.state = Transfer::State::kFailed;
  slots_[index].transfer.failure = failure;
  changed_ = true;
}

void TransferTable::release(Index index) {
  Slot& slot = slots_[index];
  slot.used = false;
  slot.owned.reset();
  // Zero is the null ticket's.
  if (++slot.generation == 0) slot.generation = 1;
  slot.next = free_;
  free_ = index;
}

void SlotList::push(TransferTable& table, Index index) {
  table[index].next = TransferTable::kNone;
  if (empty()) {
    head_ = index;
  } else {
    table[tail_].next = index;
  }
  tail_ = index;
}

SlotList::Index SlotList::pop(TransferTable& table) {
  const Index index = head_;
  head_ = table[index].next;
  table[index].next = TransferTable::kNone;
  return index;
}

void SlotList::replace_head(TransferTable& table, Index index) {
  const Index old = head_;
  table[index].next = table[old].next;
  table[old].next = TransferTable::kNone;
  head_ = index;
  if (tail_ == old) tail_ = index;
}

bool SlotList::remove(TransferTable& table, Index index) {
  Index before = TransferTable::kNone;
  for (Index at = head_; at != TransferTable::kNone; before = at, at = table[at].next) {
    if (at != index) continue;
    (before == TransferTable::kNone ? head_ : table[before].next) = table[at].next;
    if (tail_ == index) tail_ = before;
    table[at].next = TransferTable::kNone;
    return true;
  }
  return false;
}

}  // namespace starling
