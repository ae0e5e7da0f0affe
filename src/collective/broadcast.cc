#include "collective/broadcast.h"

#include <algorithm>

#include "collective/slices.h"

namespace starling {

std::vector<int> broadcast_children(int rank, int world, int root) {
  const int place = (rank - root + world) % world;
  std::vector<int> children;
  for (int bit = 1; bit < world && (place & bit) == 0; bit *= 2) {
    if (place + bit < world) children.push_back((place + bit + root) % world);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

Broadcast::Broadcast(const Channel& channel, const Arguments& arguments)
    : Operation("broadcast", channel), arguments_(arguments) {
  const size_t chunks = chunk_count(arguments_.bytes.size(), channel.chunk_bytes);
  const int place = (rank() - arguments_.root + world()) % world();
  if (place != 0) {
    parent_ = &add_stream(((place & (place - 1)) + arguments_.root) % world(), 0, chunks);
  }
  for (const int child : broadcast_children(rank(), world(), arguments_.root)) {
    children_.push_back(&add_stream(child, 0, chunks));
  }
}

std::span<std::byte> Broadcast::chunk(size_t k) const {
  const Span at = chunk_of({0, arguments_.bytes.size()}, channel().chunk_bytes, k);
  return arguments_.bytes.subspan(at.begin, at.size());
}

void Broadcast::go_on() {
  bool all_done = parent_ == nullptr || parent_->finished();
  while (parent_ != nullptr && parent_->can_start()) parent_->receive(chunk(parent_->started()));
  // Chunk by chunk to all children, so that none waits for the whole of another's.
  const size_t ready = parent_ == nullptr ? SIZE_MAX : parent_->done();
  for (bool started = true; started;) {
    started = false;
    for (Stream* child : children_) {
      if (!child->can_start() || child->started() >= ready) continue;
      child->send(chunk(child->started()));
      started = true;
    }
  }
  for (const Stream* child : children_) all_done &= child->finished();
  if (all_done) finish();
}

}  // namespace starling
