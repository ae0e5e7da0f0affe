// LinkPacer: the network interface that a worker is to have: what it sends to all peers together
// leaves at the link's rate, what it receives from all comes in at that rate (a full duplex; the
// switch between them has no limit), and the way takes the link's delay.
//
// Nothing is held back in real time. Bytes are cut into parcels, a parcel goes to its socket at
// once, and carries the moment at which its last byte would have left the interface; the receiver
// gives it on at that moment and the delay, or when its own interface has taken in what came
// before. So the link works on while a worker computes, and what a late wake-up costs is no
// throughput. A stream may be ahead of the wire only by a little (kAheadOfWire), which keeps
// streams fair and messages in the order in which they were started.
//
// Both ends of a connection have to be paced, and to have the same clock: workers of one host. What
// happens to segments (loss, slow start, acknowledgements) is not modelled.
//
// Streams and whoever calls advance() are one thread.
#pragma once

#include <functional>
#include <vector>

#include "fabric/paced/link_options.h"
#include "fabric/paced/wire.h"

namespace starling {

class PacedStream;

// How far the last byte that a stream has taken may be from leaving. Longer than a thread waits for
// its turn on a busy core.
inline constexpr std::chrono::milliseconds kAheadOfWire{10};

class LinkPacer {
 public:
  using Clock = std::function<Instant()>;

  explicit LinkPacer(const LinkOptions& options, Clock clock = std::chrono::steady_clock::now);

  // Takes in what has come over all streams, and lets through what has passed the interface by now.
  void advance();
  // When streams may read or write what they could not after the last advance().
  Instant next_look() const;

  // For streams.
  Instant now() const { return clock_(); }
  Instant advanced_at() const { return advanced_at_; }
  std::chrono::nanoseconds delay() const { return delay_; }
  // What a stream may hold of bytes that are still on their way; beyond it the socket has to.
  size_t held_bytes_most() const { return held_bytes_most_; }
  // Sends a parcel: when its last byte is out.
  Instant depart(size_t bytes, Instant now) { return out_.send(wire_bytes(bytes), now); }
  void attach(PacedStream* stream) { streams_.push_back(stream); }
  void detach(PacedStream* stream) { std::erase(streams_, stream); }

 private:
  const Clock clock_;
  const std::chrono::nanoseconds delay_;
  const size_t held_bytes_most_;
  Wire out_, in_;
  Instant advanced_at_{};
  std::vector<PacedStream*> streams_;
};

}  // namespace starling
