#include "engine/arena.h"

#include <algorithm>
#include <vector>

#include "tensor/buffer.h"

namespace starling {

size_t place_buffers(std::deque<ArenaBuffer>& buffers) {
  constexpr size_t kStep = kAlignment / sizeof(float);
  std::vector<ArenaBuffer*> order;
  for (ArenaBuffer& buffer : buffers) {
    if (buffer.first >= 0) order.push_back(&buffer);
  }
  std::stable_sort(order.begin(), order.end(), [](const ArenaBuffer* a, const ArenaBuffer* b) {
    return a->floats > b->floats;
  });

  std::vector<ArenaBuffer*> placed;  // by offset
  size_t end = 0;
  for (ArenaBuffer* buffer : order) {
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
