#include "tensor/parameter_space.h"

#include <gtest/gtest.h>

#include "starling/error.h"

namespace starling {
namespace {

ParameterSpace small_space() {
  ParameterSpace space;
  space.add("b.weight", {10, 3}, {.initializer = "he_uniform", .fan_in = 3, .fan_out = 10});
  space.add("b.bias", {10}, {.weight_decay = 0});
  space.add("a.weight", {5000}, {});
  return space;
}

TEST(ParameterSpace, SlicesKeepTheirOrderAndStartOnCacheLines) {
  const ParameterSpace space = small_space();
  ASSERT_EQ(space.slices().size(), 3u);
  EXPECT_EQ(space.slices()[0].offset, 0u);
  EXPECT_EQ(space.slices()[1].offset, 32u);
  EXPECT_EQ(space.slices()[2].offset, 48u);
  EXPECT_EQ(space.total_floats(), 48u + 5008u);
  EXPECT_EQ(space.element_count(), 30u + 10u + 5000u);
  EXPECT_EQ(space.slices()[0].shape, (Shape{10, 3}));
  EXPECT_EQ(space.slices()[0].initializer, "he_uniform");
  EXPECT_EQ(space.slices()[0].fan_out, 10);
  EXPECT_EQ(space.slices()[0].weight_decay, std::nullopt);
  EXPECT_EQ(space.slices()[1].weight_decay, 0);
}

TEST(ParameterSpace, FindsByNameAndSortsByName) {
  const ParameterSpace space = small_space();
  ASSERT_NE(space.find("b.bias"), nullptr);
  EXPECT_EQ(space.find("b.bias")->size, 10u);
  EXPECT_EQ(space.find("c"), nullptr);
  EXPECT_EQ(space.name_order(), (std::vector<size_t>{2, 1, 0}));
}

TEST(ParameterSpace, RefusesDuplicateNames) {
  ParameterSpace space = small_space();
  EXPECT_THROW(space.add("b.bias", {1}, {}), Error);
  EXPECT_EQ(space.slices().size(), 3u);
}

TEST(ParameterSpace, RefusesHugeModelsBeforeAllocatingBlocks) {
  ParameterSpace space = small_space();
  EXPECT_THROW(space.add("huge", {int64_t{1} << 40}, {}), Error);
  EXPECT_THROW(space.add("large", {int64_t{1} << 34}, {}), Error);
}

TEST(ParameterSpace, BlocksNeverCrossParameters) {
  ParameterSpace space;
  for (int64_t size : {1, 4095, 4096, 4097, 10000}) space.add(std::to_string(size), {size}, {});
  size_t block = 0;
  for (size_t i = 0; i < space.slices().size(); ++i) {
    const Slice& slice = space.slices()[i];
    size_t covered = 0;
    EXPECT_EQ(slice.first_block, block);
    while (covered < slice.size) {
      ASSERT_LT(block, space.blocks().size());
      const Block& b = space.blocks()[block++];
      EXPECT_EQ(b.slice, i);
      EXPECT_EQ(b.offset, slice.offset + covered);
      covered += b.size;
      EXPECT_EQ(b.size, covered < slice.size ? 4096u : (slice.size - 1) % 4096 + 1);
    }
    EXPECT_EQ(covered, slice.size);
    EXPECT_EQ(slice.first_block + slice.block_count, block);
  }
  EXPECT_EQ(block, space.blocks().size());
}

TEST(ParameterSpace, BucketsCoverTheSpaceWithEdgesOnBlocks) {
  ParameterSpace space;
  for (int64_t size : {100, 9000, 7, 4096, 20000}) space.add(std::to_string(size), {size}, {});
  for (size_t bytes : {size_t{0}, size_t{20000}, size_t{65536}, kBucketBytes}) {
    size_t next_block = 0, next_offset = 0;
    for (const Bucket& bucket : space.buckets(bytes)) {
      EXPECT_EQ(bucket.first_block, next_block);
      EXPECT_EQ(bucket.offset, next_offset);
      EXPECT_EQ(bucket.offset, space.blocks()[bucket.first_block].offset);
      ASSERT_GE(bucket.block_count, 1u);
      if (bucket.block_count > 1) {
        EXPECT_LE(bucket.size * sizeof(float), bytes);
      }
      next_block += bucket.block_count;
      next_offset += bucket.size;
    }
    EXPECT_EQ(next_block, space.blocks().size());
    EXPECT_EQ(next_offset, space.total_floats());
  }
  EXPECT_EQ(space.buckets(0).size(), space.blocks().size());
  EXPECT_EQ(space.buckets().size(), 1u);
  EXPECT_TRUE(ParameterSpace().buckets().empty());
}

TEST(ParameterSpace, SharesHaveAsManyFloatsToTheNearestBlock) {
  ParameterSpace space;
  for (int64_t size : {10, 54080, 32, 288, 7, 20000}) space.add(std::to_string(size), {size}, {});
  const size_t blocks = space.blocks().size();
  for (const size_t first : {size_t{0}, size_t{3}, blocks - 1, blocks}) {
    for (size_t count = 1; count <= blocks + 3; ++count) {
      size_t floats = 0;
      for (size_t b = first; b < blocks; ++b) floats += space.blocks()[b].size;
      EXPECT_EQ(space.share_begin(first, blocks, 0, count), first);
      EXPECT_EQ(space.share_begin(first, blocks, count, count), blocks);
      for (size_t index = 0; index < count; ++index) {
        const size_t begin = space.share_begin(first, blocks, index, count),
                     end = space.share_begin(first, blocks, index + 1, count);
        ASSERT_LE(begin, end);
        size_t own = 0;
        for (size_t b = begin; b < end; ++b) own += space.blocks()[b].size;
        EXPECT_LE(own, floats / count + kBlockElements) << index << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace starling
