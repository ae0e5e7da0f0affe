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
               stack_shards({samples, shards, lanes, 32}, range)) {
            for (; next < stack.begin; ++next) {  // what is left out has no rows
              EXPECT_EQ(shard_begin(samples, next, shards), shard_begin(samples, next + 1, shards));
            }
            EXPECT_EQ(stack.begin, next);
            EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(stack.size())));
            EXPECT_EQ(stack.begin % stack.size(), 0);
            if (stack.size() > 1) {
              EXPECT_EQ(samples % shards, 0);
              EXPECT_LE(stack.size() * samples / shards, 32);
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

TEST(StackShards, AreAsLargeAsTheLanesAllow) {
  const auto sizes = [](int lanes, int64_t rows, ShardRange range = {0, 8}) {
    std::vector<int> result;
    for (const ShardRange& stack :
         stack_shards({.samples = 64, .shards = 8, .lanes = lanes, .stacked_rows = rows}, range))
      result.push_back(stack.size());
    return result;
  };
  using Sizes = std::vector<int>;
  EXPECT_EQ(sizes(1, 64), (Sizes{8}));
  EXPECT_EQ(sizes(2, 64), (Sizes{4, 4}));
  EXPECT_EQ(sizes(3, 64), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));  // three each at most: no pair fits
  EXPECT_EQ(sizes(8, 64), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(1, 16), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(sizes(1, 0), (Sizes{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(1, 64, {3, 8}), (Sizes{1, 4}));
  EXPECT_EQ(sizes(1, 64, {2, 5}), (Sizes{2, 1}));
}

}  // namespace
}  // namespace starling
