#include "collective/shift.h"

#include <algorithm>

namespace starling {

Shift::Shift(const Channel& channel, const Arguments& arguments)
    : Operation("shift", channel), arguments_(arguments) {
  const std::span<const int> ring = arguments_.ring;
  const auto size = ring.empty() ? static_cast<size_t>(world()) : ring.size();
  const auto place =
      ring.empty()
          ? static_cast<size_t>(rank())
          : static_cast<size_t>(std::find(ring.begin(), ring.end(), rank()) - ring.begin());
  if (size == 1 || place == size) return;
  const auto rank_at = [&](size_t at) { return ring.empty() ? static_cast<int>(at) : ring[at]; };
  const auto chunks = [&](size_t bytes) { return chunk_count(bytes, channel.chunk_bytes); };
  receive_ = &add_stream(rank_at((place + size - 1) % size), 0, chunks(arguments_.before.size()));
  send_ = &add_stream(rank_at((place + 1) % size), 0, chunks(arguments_.own.size()));
}

void Shift::go_on() {
  if (send_ == nullptr) return finish();
  const size_t chunk = channel().chunk_bytes;
  while (receive_->can_start()) {
    const Span at = chunk_of({0, arguments_.before.size()}, chunk, receive_->started());
    receive_->receive(arguments_.before.subspan(at.begin, at.size()));
  }
  while (send_->can_start()) {
    const Span at = chunk_of({0, arguments_.own.size()}, chunk, send_->started());
    send_->send(arguments_.own.subspan(at.begin, at.size()));
  }
  if (send_->finished() && receive_->finished()) finish();
}

}  // namespace starling
