// Fabric: moves bytes between numbered peers. Nothing here blocks but progress(), and every wait
// has a deadline, so that all that stands on it can be a state machine:
//
//   start transfers; loop { poll them, act on what is done; fabric.progress(deadline); }
//
// The same loop runs over shared memory (shm/), sockets (tcp/) and, deterministically and in
// virtual time, over sim/; therefore take the time only from now().
//
// Messages from one peer with one tag are received in the order in which they were sent; between
// tags there is no order. A send is done when its memory may be used again, which says nothing
// about the receiver. A peer that is lost fails every pending and later transfer with it at once;
// only what had arrived whole before is still received.
//
// The memory of a transfer is the caller's, and must stay until the transfer is done, failed or
// cancelled. A Fabric belongs to one thread; only wake() may be called from others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace starling {

// A point of the fabric's time: real (steady) or virtual.
using Instant = std::chrono::steady_clock::time_point;
using Tag = uint64_t;

// From any peer: only for start_receive_up_to.
inline constexpr int kAnyPeer = -1;

// A transfer under way. A null ticket is one that is done.
class Ticket {
 public:
  Ticket() = default;
  explicit operator bool() const { return generation_ != 0; }
  friend bool operator==(const Ticket&, const Ticket&) = default;

 private:
  friend class TransferTable;
  uint32_t slot_ = 0;
  uint32_t generation_ = 0;
};

// What is known of a transfer.
struct Transfer {
  enum class State : uint8_t { kPending, kDone, kFailed };
  enum class Kind : uint8_t { kSend, kReceive, kReceiveUpTo };

  State state = State::kDone;
  Kind kind = Kind::kSend;
  FailureKind failure = FailureKind::kClosed;  // of a failed one
  int peer = -1;  // of start_receive_up_to(kAnyPeer, …): who sent it, once that is known
  Tag tag = 0;
  size_t bytes = 0;     // moved so far; of a message that has come: its length
  size_t of_bytes = 0;  // the length of the span
  Instant started{};

  bool pending() const { return state == State::kPending; }
  bool done() const { return state == State::kDone; }
  bool failed() const { return state == State::kFailed; }
};

struct Counters {
  uint64_t bytes_sent = 0;  // of messages, without headers
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual Instant now() const = 0;

  // Starts to send `bytes` to `peer`, which may be this rank itself.
  virtual Ticket start_send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  // Starts to receive a message that has to be exactly as long as `bytes` (else: kLength).
  virtual Ticket start_receive(int peer, Tag tag, std::span<std::byte> bytes) = 0;
  // Starts to receive a message of any length up to that of `bytes` (else: kLength); poll's `bytes`
  // says how long it was. From kAnyPeer it is the first that comes, and fails when all are gone.
  virtual Ticket start_receive_up_to(int peer, Tag tag, std::span<std::byte> bytes) = 0;

  // How the transfer is doing. The call that first says done or failed retires the ticket: it must
  // not be polled again (std::logic_error). A null ticket is done.
  virtual Transfer poll(Ticket ticket) = 0;
  // Gives the transfer up and retires the ticket; its memory is free at once. A message that was
  // partly sent is still sent whole, a message that was partly received is dropped. Null: nothing.
  virtual void cancel(Ticket ticket) = 0;

  // Moves bytes. Returns true as soon as a transfer is done or failed that was not when progress
  // last returned, or a peer is newly gone, or wake() was called; false when the deadline comes. A
  // deadline in the past moves what can be moved at once. In sim's machines it returns at once, and
  // the deadline says when to call the machine again.
  virtual bool progress(Instant deadline) = 0;
  // Makes the current or the next progress() of another thread return true.
  virtual void wake() = 0;

  // Whether the peer is known to be lost. It stays lost for this fabric.
  virtual bool gone(int peer) const = 0;
  // How that was noticed, in words that follow "peer 3": "closed the connection". Empty if it is
  // not.
  virtual std::string why_gone(int peer) const = 0;
  // Tells what was learnt elsewhere: the peer is lost.
  virtual void mark_gone(int peer) = 0;

  // Messages carry the view of their sender. Entering a later view fails all that is pending with
  // kStaleView; messages of earlier views are dropped when they come, those of later views wait
  // until this side enters them. Views only grow.
  virtual uint64_t view() const = 0;
  virtual void enter_view(uint64_t view) = 0;

  // Ends this side: all that is pending or started later fails with kClosed, and the others see
  // this rank gone. Destruction closes.
  virtual void close() = 0;

  // What was moved to and from a peer, by transfers that are done.
  virtual Counters counters(int peer) const = 0;
  // The sum over all peers.
  Counters counters() const;
};

// Waiting, for code that has nothing else to do. A transfer that is not done by the deadline is
// cancelled, so its memory is free when these return.

// The received message's (or sent) number of bytes.
Result<size_t> wait(Fabric& fabric, Ticket ticket, Instant deadline);
Status send(Fabric& fabric, int peer, Tag tag, std::span<const std::byte> bytes, Instant deadline);
Status receive(Fabric& fabric, int peer, Tag tag, std::span<std::byte> bytes, Instant deadline);
// The length of the message.
Result<size_t> receive_up_to(Fabric& fabric, int peer, Tag tag, std::span<std::byte> bytes,
                             Instant deadline);

// For code that looks at several: whether the transfer is over, which makes the ticket null. The
// failure of one that failed becomes `status`, if that has none yet.
bool is_over(Fabric& fabric, Ticket& ticket, Status& status);

// "peer 3 closed the connection", and who is gone beside it: one may have left because of another.
std::string describe_gone(const Fabric& fabric, int peer);

// The failure of a transfer that failed, or of one that is pending when its time is up, in words:
// "receive rank=2 tag=41: peer 3 is gone after 12 ms, 1048576 of 4194304 bytes".
Failure describe_failure(const Fabric& fabric, const Transfer& transfer);

}  // namespace starling
