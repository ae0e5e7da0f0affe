#include "collective/shift.h"

namespace starling {

Shift::Shift(const Channel& channel, const Arguments& arguments)
    : Operation("shift", channel), arguments_(arguments) {
  if (world() == 1) return;
  const auto chunks = [&](size_t bytes) { return chunk_count(bytes, channel.chunk_bytes); };
  receive_ = &add_stream((rank() + world() - 1) % world(), 0, chunks(arguments_.before.size()));
  send_ = &add_stream((rank() + 1) % world(), 0, chunks(arguments_.own.size()));
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
