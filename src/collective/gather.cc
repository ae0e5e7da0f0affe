#include "collective/gather.h"

#include <cstring>

namespace starling {

Gather::Gather(const Channel& channel, Arguments arguments)
    : Operation("gather", channel), arguments_(std::move(arguments)) {
  const auto chunks = [&](int peer) {
    return chunk_count(slice(peer).size(), channel.chunk_bytes);
  };
  if (rank() != arguments_.root) {
    send_ = &add_stream(arguments_.root, 0, chunks(rank()));
    return;
  }
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) receives_.push_back(&add_stream(peer, 0, chunks(peer)));
  }
  std::byte* place = arguments_.all.data() + slice(rank()).begin;
  if (!arguments_.own.empty() && place != arguments_.own.data()) {
    std::memcpy(place, arguments_.own.data(), arguments_.own.size());
  }
}

Span Gather::slice(int rank) const {
  const size_t r = static_cast<size_t>(rank);
  return {arguments_.cuts[r], arguments_.cuts[r + 1]};
}

void Gather::go_on() {
  const size_t chunk = channel().chunk_bytes;
  bool all_done = true;
  for (Stream* stream : receives_) {
    while (stream->can_start()) {
      const Span at = chunk_of(slice(stream->peer()), chunk, stream->started());
      stream->receive(arguments_.all.subspan(at.begin, at.size()));
    }
    all_done &= stream->finished();
  }
  if (send_ != nullptr) {
    while (send_->can_start()) {
      const Span at = chunk_of({0, arguments_.own.size()}, chunk, send_->started());
      send_->send(arguments_.own.subspan(at.begin, at.size()));
    }
    all_done &= send_->finished();
  }
  if (all_done) finish();
}

}  // namespace starling
