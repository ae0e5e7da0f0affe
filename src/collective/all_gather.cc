#include "collective/all_gather.h"

namespace starling {

AllGather::AllGather(const Channel& channel, Arguments arguments, const char* name)
    : Operation(name, channel), arguments_(std::move(arguments)) {
  const size_t limit = arguments_.held ? 0 : SIZE_MAX;
  ready_ = limit;
  free_.assign(static_cast<size_t>(world()), limit);
  const auto chunks = [&](int peer) {
    return chunk_count(slice(peer).size(), channel.chunk_bytes);
  };
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    receives_.push_back(&add_stream(peer, 0, chunks(peer)));
    sends_.push_back(&add_stream(peer, 0, chunks(rank())));
  }
}

Span AllGather::slice(int rank) const {
  const size_t r = static_cast<size_t>(rank);
  return {arguments_.cuts[r], arguments_.cuts[r + 1]};
}

std::span<std::byte> AllGather::chunk(int rank, size_t k) const {
  const Span at = chunk_of(slice(rank), channel().chunk_bytes, k);
  return arguments_.all.subspan(at.begin, at.size());
}

void AllGather::go_on() {
  bool all_done = true;
  for (Stream* stream : receives_) {
    while (stream->can_start() && stream->started() < free_[static_cast<size_t>(stream->peer())]) {
      stream->receive(chunk(stream->peer(), stream->started()));
    }
    all_done &= stream->finished();
  }
  for (Stream* stream : sends_) {
    while (stream->can_start() && stream->started() < ready_) {
      stream->send(chunk(rank(), stream->started()));
    }
    all_done &= stream->finished();
  }
  if (all_done) finish();
}

}  // namespace starling
