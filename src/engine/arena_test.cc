#include "engine/arena.h"

#include <gtest/gtest.h>

#include <random>

#include "seeds.h"

namespace starling {
namespace {

bool collide(const ArenaBuffer& a, const ArenaBuffer& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  const bool overlap = a.offset < b.offset + b.floats && b.offset < a.offset + a.floats;
  return together && overlap;
}

TEST(Arena, BuffersThatNeverMeetShareMemory) {
  std::deque<ArenaBuffer> buffers{{100, 0, 1}, {100, 2, 3}, {100, 4, 5}};
  EXPECT_EQ(place_buffers(buffers), 112u);
}

TEST(Arena, LiveBuffersNeverOverlap) {
  std::mt19937 random(7);
  for (uint64_t round = 0; round < seed_count(200); ++round) {
    std::deque<ArenaBuffer> buffers;
    for (int i = 0; i < 30; ++i) {
      const int first = static_cast<int>(random() % 40);
      buffers.push_back({1 + random() % 500, first, first + static_cast<int>(random() % 10)});
    }
    const size_t total = place_buffers(buffers);
    for (size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(buffers[i].offset % 16, 0u);
      EXPECT_LE(buffers[i].offset + buffers[i].floats, total);
      for (size_t j = 0; j < i; ++j) ASSERT_FALSE(collide(buffers[i], buffers[j]));
    }
  }
}

TEST(Arena, UnusedBuffersTakeNoRoom) {
  std::deque<ArenaBuffer> buffers{{1000, -1, -1}, {16, 0, 0}};
  EXPECT_EQ(place_buffers(buffers), 16u);
}

}  // namespace
}  // namespace starling
