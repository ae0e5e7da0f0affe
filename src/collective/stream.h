// Stream: the messages of one operation to one peer, or from it, in order, of which a few are under
// way at once. Each has a tag of its own, so a message that a network doubles or delays is never
// taken for another. It owns its tickets and cancels them at its end; the memory is the caller's.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>

#include "fabric/fabric.h"

namespace starling {

class Stream {
 public:
  struct Options {
    int peer = 0;
    Tag tag = 0;        // of the first message; the next have those that follow
    size_t count = 0;   // messages in all
    size_t window = 1;  // under way at once, at most
  };

  Stream(Fabric& fabric, const Options& options) : fabric_(&fabric), options_(options) {}
  ~Stream() { cancel(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int peer() const { return options_.peer; }
  size_t count() const { return options_.count; }
  size_t started() const { return started_; }
  size_t done() const { return done_; }  // of the messages, in order
  bool finished() const { return done_ == options_.count; }
  // Whether message number started() may be started.
  bool can_start() const {
    return started_ < options_.count && pending_.size() < options_.window && !failure_;
  }

  // Starts message number started(); requires can_start().
  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);

  // Looks which messages are done; true when some newly are.
  bool poll();
  // The transfer that failed.
  const std::optional<Transfer>& failure() const { return failure_; }
  // The first transfer that is not done: the state of it, or nothing when none is under way.
  const std::optional<Transfer>& waiting() const { return last_; }
  void cancel();

 private:
  Tag next_tag() { return options_.tag + started_++; }

  Fabric* fabric_;
  Options options_;
  size_t started_ = 0, done_ = 0;
  std::deque<Ticket> pending_;
  std::optional<Transfer> failure_, last_;
};

}  // namespace starling
