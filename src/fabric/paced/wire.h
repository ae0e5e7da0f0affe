// Wire: one direction of a network interface, as a calculation: which bytes are through when. It is
// told the time, waits for nothing and moves nothing. There is no burst: after a pause the first
// byte takes as long as any other. One thread.
#pragma once

#include "fabric/fabric.h"

namespace starling {

// What a full Ethernet frame carries of a stream, and what is around it: Ethernet 14, IPv4 20, TCP
// with timestamps 32. This is what the queues of `tc` count.
inline constexpr size_t kSegmentBytes = 1448;
inline constexpr size_t kSegmentOverheadBytes = 66;

// Bytes on the wire of so many bytes of a stream that are sent at once.
size_t wire_bytes(size_t stream_bytes);

class Wire {
 public:
  // 0: no limit.
  explicit Wire(uint64_t bits_per_second) : bits_per_second_(bits_per_second) {}

  // Sends them at `ready`, or after all that was sent before: when the last of them is out.
  Instant send(size_t bytes, Instant ready);
  // They come from elsewhere, the last of them at `last`, if what came before leaves the time for
  // it: when the last of them is in. Calls are in the order of `last`.
  Instant receive(size_t bytes, Instant last);

 private:
  std::chrono::nanoseconds time_of(size_t bytes) const;

  const uint64_t bits_per_second_;
  Instant busy_until_{};
};

}  // namespace starling
