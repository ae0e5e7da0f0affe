#include "engine/shards.h"

#include <gtest/gtest.h>

#include <bit>

namespace starling {
namespace {

TEST(StackShards, CoverTheRangeByWholeSubtreesWithoutEmptyShards) {
  for (const int shards : {1, 2, 3, 6, 8, 16}) {
    for (const int64_t samples : {1, 5, 16, 48, 96}) {
      for (const int lanes : {1, 2, 3, 8}) {
        for (const ShardRange range : {ShardRange{0, shards}, ShardRange{shards / 3, shards}}) {
          int next = range.begin;
          for (const ShardRange& stack :
               stack_shards({StepSize::of_batch(samples), shards, lanes, 4}, range)) {
            for (; next < stack.begin; ++next) {  // what is left out has no rows
              EXPECT_EQ(shard_begin(samples, next, shards), shard_begin(samples, next + 1, shards));
            }
            EXPECT_EQ(stack.begin, next);
            EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(stack.size())));
            EXPECT_EQ(stack.begin % stack.size(), 0);
            if (stack.size() > 1) {
              EXPECT_EQ(samples % shards, 0);
              EXPECT_LE(stack.size(), 4);
            }
            next = stack.end;
          }
          for (; next < range.end; ++next)
            EXPECT_EQ(shard_begin(samples, next, shards), shard_begin(samples, next + 1, shards));
        }
      }
    }
  }
}

TEST(StackShards, OfSeveralBatchesAreSingleShards) {
  const StepSize step{.samples = 48, .batch = 16};
  EXPECT_EQ(step.batches(), 3);
  EXPECT_EQ(stack_shards({.step = step, .shards = 8, .lanes = 1, .most = 8}, {0, 8}).size(), 8u);
}

TEST(StepSize, TheLastBatchHasWhatIsLeft) {
  const StepSize step{.samples = 23, .batch = 10};
  EXPECT_EQ(step.batches(), 3);
  EXPECT_EQ(step.batch_size(0), 10);
  EXPECT_EQ(step.batch_size(2), 3);
  // A batch of 10 has no sample for shard 5 of 16, one of 3 has.
  EXPECT_FALSE(StepSize::of_batch(10).has_rows(5, 16));
  EXPECT_TRUE(StepSize::of_batch(3).has_rows(5, 16));
  EXPECT_TRUE(step.has_rows(5, 16));
  EXPECT_FALSE(StepSize{}.has_rows(0, 1));
}

TEST(StackShards, AreAsLargeAsTheLanesAllow) {
  const auto sizes = [](int lanes, int most, ShardRange range = {0, 8}) {
    std::vector<int> result;
    for (const ShardRange& stack : stack_shards(
             {.step = StepSize::of_batch(64), .shards = 8, .lanes = lanes, .most = most}, range))
      result.push_back(stack.size());
    return result;
  };
  using Sizes = std::vector<int>;
  EXPECT_EQ(sizes(1, 8), (Sizes{8}));
  EXPECT_EQ(sizes(2, 8), (Sizes{4, 4}));
  EXPECT_EQ(sizes(3, 8), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));  // three each at most: no pair fits
  EXPECT_EQ(sizes(8, 8), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(1, 2), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(sizes(1, 1), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(1, 8, {3, 8}), (Sizes{1, 4}));
  EXPECT_EQ(sizes(1, 8, {2, 5}), (Sizes{2, 1}));
}

}  // namespace
}  // namespace starling
