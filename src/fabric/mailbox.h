// Mailbox: the receiving half of a fabric. It brings together messages that arrive, in pieces, and
// receives that were started, in order per (peer, tag). A message whose receive was started goes
// straight to its memory; others wait in buffers, up to a limit per peer: beyond it the mailbox
// takes no message from that peer, and what carries the bytes has to hold them back.
//
// A message may also arrive as a handle of where its bytes lie (in place); the InPlaceSource copies
// them when they are received. One thread.
#pragma once

#include <memory>
#include <vector>

#include "fabric/transfer_table.h"

namespace starling {

// A message that arrives. Who carries it writes its bytes at place() and tells Mailbox::advance.
struct Incoming {
  int peer = -1;
  Tag tag = 0;
  uint64_t view = 0;
  size_t length = 0;
  size_t received = 0;
  uint64_t handle = 0;  // of one in place
  bool in_place = false;
  bool drop = false;  // nobody wants it: its bytes are read and forgotten
  TransferTable::Index slot = TransferTable::kNone;  // the receive that it goes to
  std::byte* target = nullptr;                       // its memory, or the buffer's; null if dropped
  std::unique_ptr<std::byte[]> buffer;
  size_t capacity = 0;  // of the buffer

  std::byte* place() const { return target + received; }
  size_t left() const { return length - received; }
};

// Has the bytes of messages in place.
class InPlaceSource {
 public:
  virtual ~InPlaceSource() = default;
  // Copies the message to `target`, and lets its sender know. False if it was taken back.
  virtual bool fetch(int peer, uint64_t handle, std::span<std::byte> target) = 0;
  // The message will not be fetched.
  virtual void discard(int peer, uint64_t handle) = 0;
};

class Mailbox {
 public:
  using Index = TransferTable::Index;

  // `counters` has an element per peer. All must outlive the mailbox; `source` may be null when
  // nothing arrives in place.
  Mailbox(TransferTable& table, std::vector<Counters>& counters, int rank,
          size_t buffer_bytes_per_peer, InPlaceSource* source);

  // A receive was started: takes what has come for it, or waits.
  void post(Index slot);
  void cancel(Index slot);

  // A message begins to arrive. Null when there is no room for it now: ask again later, and read
  // nothing more from that peer before. The message is the mailbox's; the pointer is good until
  // advance returns true or the peer is gone.
  Incoming* begin(int peer, Tag tag, uint64_t view, size_t length);
  // `bytes` more of it were written; true when it is complete (also asked with 0 of 0 bytes).
  bool advance(Incoming* message, size_t bytes);
  // A message arrives whole, in place; there is always room for it.
  void arrive_in_place(int peer, Tag tag, uint64_t view, size_t length, uint64_t handle);

  void enter_view(uint64_t view);
  uint64_t view() const { return view_; }
  // Fails all receives from the peer; whole messages stay.
  void peer_gone(int peer);
  // Fails all receives and forgets all messages.
  void close();

 private:
  Incoming* take_blank(int peer, Tag tag, uint64_t view, size_t length);
  void recycle(Incoming* message);
  Index match(const Incoming& message);
  bool give(Incoming* message, Index slot);
  void forget_buffered(Incoming* message);
  void fail_list(SlotList& list, FailureKind failure);
  bool all_gone() const;
  void finish_receive(Index slot, const Incoming& message);

  TransferTable& table_;
  std::vector<Counters>& counters_;
  const int rank_;
  const size_t buffer_bytes_per_peer_;
  InPlaceSource* const source_;
  uint64_t view_ = 0;
  std::vector<SlotList> posted_;  // by peer
  SlotList posted_any_;
  std::vector<bool> gone_;
  std::vector<size_t> buffered_bytes_;  // by peer
  std::vector<Incoming*> buffered_;     // without a receive, in order of arrival; may be arriving
  std::vector<Incoming*> arriving_;     // not complete
  std::vector<Incoming*> blank_;
  std::vector<std::unique_ptr<Incoming>> all_;
};

}  // namespace starling
