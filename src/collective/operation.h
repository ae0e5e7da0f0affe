// Operation: one collective on its way, as a state machine: advance() does what can be done without
// waiting and says how it stands. Any number can be under way over one fabric. Algorithms derive
// from it, one file each; Collectives (collectives.h) starts them, gives them tags and deadlines.
//
// The memory that an operation was given is the caller's and stays until it is done or failed. An
// operation that ends, by its end or by destruction, leaves nothing under way. It belongs to the
// thread of its fabric, never blocks, and fails with a named Failure when a peer that it still
// needs is lost.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collective/stream.h"

namespace starling {

// What every operation gets from its communicator. Chunk and window are part of the agreement
// between ranks: they must be the same on all.
struct Channel {
  Fabric* fabric = nullptr;
  Tag tag = 0;  // the operation may use this and the kTagsPerOperation − 1 that follow
  size_t chunk_bytes = 256 << 10;  // of one message; a multiple of 4
  size_t window = 4;               // messages under way per stream

  int rank() const { return fabric->rank(); }
  int world() const { return fabric->world(); }
};

inline constexpr Tag kTagsPerOperation = Tag{1} << 24;

class Operation {
 public:
  enum class State : uint8_t { kPending, kDone, kFailed };

  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Polls what is under way and goes on as far as it can.
  State advance();
  State state() const { return state_; }
  const char* name() const { return name_; }
  // Of an operation that failed.
  const Failure& failure() const { return failure_; }

  // Ends it as failed: its time is up, and the message says what it was waiting for; or another
  // rank gave up, for the reason given.
  void fail_late();
  void fail(FailureKind kind, int peer, const std::string& reason);

 protected:
  Operation(const char* name, const Channel& channel);

  // Starts what can be started, given what is done; calls finish() at the end.
  virtual void go_on() = 0;
  // Which step of the algorithm this is, for messages: messages that are done, unless told.
  virtual size_t step() const;
  // What it waits for, if anything.
  virtual std::optional<Transfer> waiting() const;
  // Cancels all that is under way.
  virtual void abandon() { clear_streams(); }
  void finish() { state_ = State::kDone; }
  // Ends as a part of this operation did.
  void fail_as(const Operation& part);

  // A stream of this operation; its tags begin `offset` after the operation's first.
  Stream& add_stream(int peer, Tag offset, size_t count);
  // Ends all streams and forgets them, for the next step.
  void clear_streams();

  const Channel& channel() const { return channel_; }
  Fabric& fabric() const { return *channel_.fabric; }
  int rank() const { return channel_.rank(); }
  int world() const { return channel_.world(); }

 private:
  void fail_transfer(const Transfer& transfer);

  const char* name_;
  Channel channel_;
  Instant started_;
  State state_ = State::kPending;
  Failure failure_;
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t messages_done_ = 0;  // of streams that were cleared
};

}  // namespace starling
