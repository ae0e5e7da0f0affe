#include "fabric/paced/wire.h"

#include <algorithm>
#include <cmath>

namespace starling {

size_t wire_bytes(size_t stream_bytes) {
  const size_t segments = (stream_bytes + kSegmentBytes - 1) / kSegmentBytes;
  return stream_bytes + segments * kSegmentOverheadBytes;
}

std::chrono::nanoseconds Wire::time_of(size_t bytes) const {
  if (bits_per_second_ == 0) return {};
  const double seconds = 8.0 * static_cast<double>(bytes) / static_cast<double>(bits_per_second_);
  return std::chrono::nanoseconds(std::llround(1e9 * seconds));
}

Instant Wire::send(size_t bytes, Instant ready) {
  busy_until_ = std::max(busy_until_, ready) + time_of(bytes);
  return busy_until_;
}

// They are taken in as they come: what only begins when all are there would count their time twice.
Instant Wire::receive(size_t bytes, Instant last) {
  busy_until_ = std::max(busy_until_ + time_of(bytes), last);
  return busy_until_;
}

}  // namespace starling
