#include "engine/arena.h"

#include <algorithm>
#include <vector>

#include "tensor/buffer.h"

namespace starling {

namespace {

// Floats that are live at each moment.
std::vector<size_t> live_floats(const std::deque<ArenaBuffer>& buffers) {
  std::vector<size_t> live;
  for (const ArenaBuffer& buffer : buffers) {
    if (buffer.first < 0) continue;
    const auto first = static_cast<size_t>(buffer.first), last = static_cast<size_t>(buffer.last);
    if (live.size() <= last) live.resize(last + 1);
    for (size_t moment = first; moment <= last; ++moment) live[moment] += buffer.floats;
  }
  return live;
}

std::vector<ArenaBuffer*> placing_order(std::deque<ArenaBuffer>& buffers) {
  const std::vector<size_t> live = live_floats(buffers);
  struct Placing {
    ArenaBuffer* buffer;
    size_t fullest;  // the most that is live while it lives
  };
  std::vector<Placing> placings;
  for (ArenaBuffer& buffer : buffers) {
    if (buffer.first < 0) continue;
    const auto begin = live.begin() + buffer.first, end = live.begin() + buffer.last + 1;
    placings.push_back({&buffer, *std::max_element(begin, end)});
  }
  std::stable_sort(placings.begin(), placings.end(), [](const Placing& a, const Placing& b) {
    if (a.fullest != b.fullest) return a.fullest > b.fullest;
    return a.buffer->last - a.buffer->first > b.buffer->last - b.buffer->first;
  });
  std::vector<ArenaBuffer*> order;
  for (const Placing& placing : placings) order.push_back(placing.buffer);
  return order;
}

}  // namespace

size_t place_buffers(std::deque<ArenaBuffer>& buffers) {
  constexpr size_t kStep = kAlignment / sizeof(float);
  std::vector<ArenaBuffer*> placed;  // by offset
  size_t end = 0;
  for (ArenaBuffer* buffer : placing_order(buffers)) {
    size_t offset = 0;
    for (const ArenaBuffer* other : placed) {
      const bool together = buffer->first <= other->last && other->first <= buffer->last;
      if (!together) continue;
      if (offset + buffer->floats <= other->offset) break;
      offset = std::max(offset, round_up(other->offset + other->floats, kStep));
    }
    buffer->offset = offset;
    end = std::max(end, offset + buffer->floats);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                   [](const ArenaBuffer* a, const ArenaBuffer* b) {
                                     return a->offset < b->offset;
                                   }),
                  buffer);
  }
  return round_up(end, kStep);
}

}  // namespace starling
