// TransferTable: the transfers of a fabric that are under way, in slots that are used again, so
// that starting one allocates nothing once the table has grown to what is in flight. Slots are
// chained into lists by their numbers (SlotList). One thread.
#pragma once

#include <deque>
#include <memory>

#include "fabric/fabric.h"

namespace starling {

class TransferTable {
 public:
  using Index = uint32_t;
  static constexpr Index kNone = UINT32_MAX;

  struct Slot {
    Transfer transfer;
    const std::byte* source = nullptr;  // of a send
    std::byte* target = nullptr;        // of a receive
    uint64_t order = 0;                 // counts transfers: which was started first
    uint64_t view = 0;                  // of a send: what its message carries
    uint64_t handle = 0;                // for the fabric's own use
    Index next = kNone;                 // in the list that it stands in
    uint32_t generation = 1;
    bool used = false;
    bool orphan = false;                 // nobody holds its ticket: freed when it is finished
    std::unique_ptr<std::byte[]> owned;  // of an orphaned send: what is still to be sent
  };

  // A slot for a new transfer, pending.
  Index add(Transfer::Kind kind, int peer, Tag tag, size_t bytes, Instant now);
  Slot& operator[](Index index) { return slots_[index]; }
  Ticket ticket(Index index) const;
  // The slot of a ticket; throws std::logic_error when the ticket is retired.
  Index find(Ticket ticket) const;

  void finish(Index index, size_t bytes);
  void fail(Index index, FailureKind failure);
  // Frees the slot; its ticket is retired.
  void release(Index index);

  // Whether a transfer was finished, or something else noted, since this was last asked.
  bool take_changed() { return std::exchange(changed_, false); }
  void note_change() { changed_ = true; }

 private:
  std::deque<Slot> slots_;  // a deque: references stay good while it grows
  Index free_ = kNone;
  uint64_t started_ = 0;
  bool changed_ = false;
};

// Slots in order, chained by Slot::next. A slot stands in at most one list.
class SlotList {
 public:
  using Index = TransferTable::Index;

  bool empty() const { return head_ == TransferTable::kNone; }
  Index head() const { return head_; }
  void push(TransferTable& table, Index index);
  Index pop(TransferTable& table);
  void replace_head(TransferTable& table, Index index);
  // Whether it was there.
  bool remove(TransferTable& table, Index index);

 private:
  Index head_ = TransferTable::kNone;
  Index tail_ = TransferTable::kNone;
};

}  // namespace starling
