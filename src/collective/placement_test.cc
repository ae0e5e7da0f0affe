#include "collective/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collective/collective_testing.h"
#include "starling/error.h"

namespace starling {
namespace {

// Sums each partial as its worker would, merges them by the plan, and compares with the tree.
void expect_the_trees_bits(const Placement& placement,
                           const std::vector<std::vector<float>>& leaves) {
  ASSERT_EQ(placement.leaves(), leaves.size());
  const size_t n = leaves[0].size();
  const std::vector<const float*> at = pointers(leaves);
  std::vector<float> expected(n), merged(n, -1.0f);
  tree_sum(at, n, expected.data());
  std::vector<std::vector<float>> sums;
  for (const LeafRange& part : placement.partials()) {
    sums.emplace_back(n);
    tree_sum(std::span(at).subspan(part.begin, part.size()), n, sums.back().data());
  }
  placement.merge().sum(pointers(sums), n, merged.data());
  ASSERT_EQ(merged, expected);
  for (const MergePlan::Addition& addition : placement.merge().additions()) {
    for (size_t i = 0; i < n; ++i) sums[addition.left][i] += sums[addition.right][i];
  }
  ASSERT_EQ(sums[0], expected);
}

TEST(Placement, MergedPartialsHaveTheTreesBits) {
  for (size_t shards = 1; shards <= 32; ++shards) {
    const auto leaves = random_leaves(shards, 17, shards);
    for (size_t workers = 1; workers <= 16; ++workers) {
      SCOPED_TRACE(testing::Message() << shards << " shards, " << workers << " workers");
      expect_the_trees_bits(Placement::even(shards, workers), leaves);
      for (uint64_t seed = 0; seed < 4; ++seed) {
        expect_the_trees_bits(
            Placement(random_split(shards, workers, seed + 100 * workers + 10000 * shards)),
            leaves);
      }
    }
  }
}

TEST(Placement, EveryContiguousSplitHasTheTreesBits) {
  for (size_t shards = 1; shards <= 10; ++shards) {
    const auto leaves = random_leaves(shards, 5, 77 + shards);
    for (size_t cuts = 0; cuts < size_t{1} << (shards - 1); ++cuts) {
      std::vector<LeafRange> ranges = {{0, 1}};
      for (size_t k = 1; k < shards; ++k) {
        if (cuts >> (k - 1) & 1) ranges.push_back({k, k});
        ranges.back().end = k + 1;
      }
      expect_the_trees_bits(Placement(ranges), leaves);
    }
  }
}

TEST(Placement, ManyShardsHaveTheTreesBits) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const size_t shards = 1 + mix64(seed) % 1024;
    const size_t workers = 1 + mix64(seed + 1000) % 16;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_the_trees_bits(Placement(random_split(shards, workers, seed)),
                          random_leaves(shards, 3, seed));
  }
}

TEST(Placement, LongSumsGoByChunksWithTheSameBits) {
  // 4 | 1 1: not the tree over three, so the plan sums by itself.
  const Placement placement({{0, 4}, {4, 5}, {5, 6}});
  EXPECT_FALSE(placement.merge().is_canonical());
  expect_the_trees_bits(placement, random_leaves(6, 5003, 3));
}

TEST(Placement, TheSumMayOverwriteAnyPart) {
  const size_t n = 3001;
  for (const size_t leaves : {2u, 3u, 6u, 11u}) {
    const Placement placement = Placement::even(leaves, leaves);
    const auto parts = random_leaves(leaves, n, 5);
    std::vector<float> expected(n);
    placement.merge().sum(pointers(parts), n, expected.data());
    for (size_t k = 0; k < leaves; ++k) {
      auto copy = parts;
      placement.merge().sum(pointers(copy), n, copy[k].data());
      EXPECT_EQ(copy[k], expected) << "over part " << k;
    }
  }
}

TEST(Placement, AnExchangedLeafHasOtherBits) {
  for (const size_t shards : {3u, 4u, 8u, 16u}) {
    auto leaves = random_leaves(shards, 4096, 9);
    const Placement placement = Placement::even(shards, shards);
    std::vector<float> right(4096), wrong(4096);
    placement.merge().sum(pointers(leaves), 4096, right.data());
    std::swap(leaves[1], leaves[2]);
    placement.merge().sum(pointers(leaves), 4096, wrong.data());
    EXPECT_NE(right, wrong);
  }
}

TEST(Placement, NothingSumsToZeros) {
  const Placement placement({{0, 0}, {0, 0}});
  EXPECT_EQ(placement.leaves(), 0u);
  std::vector<float> sums(5, 3.0f);
  placement.merge().sum({}, sums.size(), sums.data());
  EXPECT_EQ(sums, std::vector<float>(5, 0.0f));
}

size_t total_partials(std::span<const LeafRange> ranges) {
  size_t total = 0;
  for (const LeafRange& range : ranges) total += partials_of(range, ranges.back().end).size();
  return total;
}

TEST(Placement, EvenPlacementIsBalancedAndHasTheFewestPartials) {
  for (size_t shards = 1; shards <= 20; ++shards) {
    for (size_t workers = 1; workers <= 8; ++workers) {
      SCOPED_TRACE(testing::Message() << shards << " shards, " << workers << " workers");
      const std::vector<LeafRange> placed = place_shards(shards, workers);
      ASSERT_EQ(placed.size(), workers);
      const size_t least = shards / workers;
      for (const LeafRange& range : placed) {
        EXPECT_GE(range.size(), least);
        EXPECT_LE(range.size(), least + (shards % workers != 0));
      }
      // Against every balanced placement there is.
      size_t fewest = SIZE_MAX;
      for (size_t more = 0; more < size_t{1} << workers; ++more) {
        std::vector<LeafRange> ranges;
        for (size_t w = 0, begin = 0; w < workers; ++w) {
          ranges.push_back({begin, begin + least + (more >> w & 1)});
          begin = ranges.back().end;
        }
        if (ranges.back().end == shards) fewest = std::min(fewest, total_partials(ranges));
      }
      EXPECT_EQ(total_partials(placed), fewest);
    }
  }
}

TEST(Placement, PowersOfTwoAreAligned) {
  for (const size_t workers : {1u, 2u, 4u, 8u, 16u}) {
    EXPECT_TRUE(Placement::even(16, workers).is_aligned()) << workers;
  }
  EXPECT_TRUE(Placement::even(6, 4).is_aligned());  // 2 2 1 1
  EXPECT_FALSE(Placement::even(16, 3).is_aligned());
  EXPECT_FALSE(Placement({{0, 3}, {3, 4}}).is_aligned());
  EXPECT_FALSE(Placement({{0, 4}, {4, 4}}).is_aligned());
}

TEST(Placement, EmptyShardsAreNoLeaves) {
  for (size_t shards = 1; shards <= 17; ++shards) {
    const std::vector<LeafRange> placed = place_shards(shards, 3);
    for (size_t samples = 0; samples <= shards + 1; ++samples) {
      std::vector<LeafRange> expected;
      size_t leaf = 0;
      for (const LeafRange& range : placed) {
        expected.push_back({leaf, leaf});
        for (size_t i = range.begin; i < range.end; ++i) {
          leaf += (i + 1) * samples / shards > i * samples / shards;
        }
        expected.back().end = leaf;
      }
      const Placement placement = Placement::of_batch(placed, samples);
      for (size_t w = 0; w < 3; ++w) EXPECT_EQ(placement.range(w), expected[w]);
      EXPECT_EQ(placement.leaves(), std::min(samples, shards));
    }
  }
}

TEST(Placement, PartialsAreTheFewestWholeSubtrees) {
  using Parts = std::vector<LeafRange>;
  EXPECT_EQ(partials_of({0, 16}, 16), (Parts{{0, 16}}));
  EXPECT_EQ(partials_of({0, 5}, 16), (Parts{{0, 4}, {4, 5}}));
  EXPECT_EQ(partials_of({5, 11}, 16), (Parts{{5, 6}, {6, 8}, {8, 10}, {10, 11}}));
  EXPECT_EQ(partials_of({4, 7}, 7), (Parts{{4, 7}}));  // the end of the tree is a subtree
  EXPECT_EQ(partials_of({3, 3}, 7), Parts{});
}

TEST(Placement, RefusesGapsOverlapsAndHalves) {
  EXPECT_THROW(Placement({{0, 2}, {3, 4}}), Error);
  EXPECT_THROW(Placement({{0, 2}, {1, 4}}), Error);
  EXPECT_THROW(Placement({{1, 2}}), Error);
  EXPECT_THROW(Placement(std::vector<LeafRange>{}), Error);
  EXPECT_THROW(MergePlan({{0, 1}, {1, 3}, {3, 4}}), Error);
  EXPECT_THROW(MergePlan({{0, 2}, {3, 4}}), Error);
}

}  // namespace
}  // namespace starling
