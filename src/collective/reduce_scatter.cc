#include "collective/reduce_scatter.h"

#include <algorithm>

namespace starling {

ReduceScatter::ReduceScatter(const Channel& channel, Arguments arguments, const char* name)
    : Operation(name, channel),
      arguments_(std::move(arguments)),
      chunk_(channel.chunk_bytes / sizeof(float)) {
  const Placement& placement = *arguments_.placement;
  chunks_ = chunk_count(slice(rank()).size(), chunk_);
  const size_t foreign =
      placement.partials().size() - placement.partials(static_cast<size_t>(rank())).size();
  const size_t waiting = std::min(channel.window, chunks_);
  if (waiting * foreign > 0) {
    received_ = Buffer<float>(waiting * foreign * std::min(chunk_, slice(rank()).size()));
  }
  parts_.resize(placement.partials().size());
  sends_.resize(static_cast<size_t>(world()));
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    for (size_t j = 0; j < placement.partials(static_cast<size_t>(peer)).size(); ++j) {
      receives_.push_back(&add_stream(peer, j * chunks_, chunks_));
    }
    const size_t chunks = chunk_count(slice(peer).size(), chunk_);
    for (size_t j = 0; j < arguments_.partials.size(); ++j) {
      sends_[static_cast<size_t>(peer)].push_back(&add_stream(peer, j * chunks, chunks));
    }
  }
}

Span ReduceScatter::slice(int rank) const {
  const size_t r = static_cast<size_t>(rank);
  return {arguments_.cuts[r], arguments_.cuts[r + 1]};
}

float* ReduceScatter::place(size_t chunk, size_t foreign) {
  const size_t slot = chunk % std::min(channel().window, chunks_);
  const size_t stride = std::min(chunk_, slice(rank()).size());
  return received_.data() + (slot * receives_.size() + foreign) * stride;
}

size_t ReduceScatter::chunks_sent(int peer) const {
  size_t sent = chunk_count(slice(peer).size(), chunk_);
  if (state() == State::kDone) return sent;  // its streams are no more
  for (const Stream* stream : sends_[static_cast<size_t>(peer)]) {
    sent = std::min(sent, stream->done());
  }
  return sent;
}

void ReduceScatter::sum_next() {
  const Span at = chunk_of(slice(rank()), chunk_, summed_);
  const size_t first = arguments_.placement->first_partial(static_cast<size_t>(rank()));
  size_t foreign = 0;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const bool own = k >= first && k < first + arguments_.partials.size();
    parts_[k] = own ? arguments_.partials[k - first] + at.begin : place(summed_, foreign++);
  }
  arguments_.placement->merge().sum(parts_, at.size(),
                                    arguments_.slice + (at.begin - slice(rank()).begin));
  ++summed_;
}

void ReduceScatter::go_on() {
  bool all_sent = true;
  for (int peer = 0; peer < world(); ++peer) {
    auto& sends = sends_[static_cast<size_t>(peer)];
    for (size_t j = 0; j < sends.size(); ++j) {
      while (sends[j]->can_start()) {
        const Span at = chunk_of(slice(peer), chunk_, sends[j]->started());
        sends[j]->send(std::as_bytes(std::span(arguments_.partials[j] + at.begin, at.size())));
      }
      all_sent &= sends[j]->finished();
    }
  }
  const auto arrived = [&](const Stream* stream) { return stream->done() > summed_; };
  while (summed_ < chunks_ && std::all_of(receives_.begin(), receives_.end(), arrived)) sum_next();
  for (size_t k = 0; k < receives_.size(); ++k) {
    while (receives_[k]->can_start() && receives_[k]->started() < summed_ + channel().window) {
      const size_t chunk = receives_[k]->started();
      const Span at = chunk_of(slice(rank()), chunk_, chunk);
      receives_[k]->receive(std::as_writable_bytes(std::span(place(chunk, k), at.size())));
    }
  }
  if (all_sent && summed_ == chunks_) finish();
}

}  // namespace starling
