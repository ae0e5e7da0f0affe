#include "param/sample_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace starling {
namespace {

using Ranges = std::vector<SampleRange>;

TEST(SampleRanges, NeighboursBecomeOne) {
  SampleRanges ranges;
  ranges.add({10, 20});
  ranges.add({30, 40});
  EXPECT_EQ(ranges.ranges(), (Ranges{{10, 20}, {30, 40}}));
  ranges.add({20, 30});
  EXPECT_EQ(ranges.ranges(), (Ranges{{10, 40}}));
  ranges.add({0, 5});
  ranges.add({40, 41});
  EXPECT_EQ(ranges.ranges(), (Ranges{{0, 5}, {10, 41}}));
  EXPECT_EQ(ranges.size(), 36u);
}

TEST(SampleRanges, TakesTheFirstAsFarAsTheyFollowOneAnother) {
  SampleRanges ranges(SampleRange{0, 10});
  ranges.remove({4, 6});
  EXPECT_EQ(ranges.take(3), (SampleRange{0, 3}));
  EXPECT_EQ(ranges.take(3), (SampleRange{3, 4}));
  EXPECT_EQ(ranges.take(100), (SampleRange{6, 10}));
  EXPECT_EQ(ranges.take(1), std::nullopt);
  EXPECT_TRUE(ranges.empty());
}

TEST(SampleRanges, HasARangeOnlyIfItHasAllOfIt) {
  SampleRanges ranges(SampleRange{10, 20});
  ranges.add({30, 40});
  EXPECT_TRUE(ranges.has({10, 20}));
  EXPECT_TRUE(ranges.has({33, 40}));
  for (const SampleRange& other : Ranges{{9, 12}, {15, 21}, {20, 30}, {15, 35}, {40, 41}})
    EXPECT_FALSE(ranges.has(other)) << other.begin;
}

TEST(SampleRanges, TakesAboutSoManyAndLeavesNoSmallRests) {
  SampleRanges ranges({0, 3});
  ranges.add({10, 24});
  EXPECT_EQ(ranges.take_about(10, 20), (SampleRange{10, 24})) << "4 would be left";
  ranges.add({10, 24});
  EXPECT_EQ(ranges.take_about(10, 12), (SampleRange{10, 22})) << "no more is permitted";
  ranges.add({30, 60});
  EXPECT_EQ(ranges.take_about(10, 20), (SampleRange{30, 40}));
  EXPECT_EQ(ranges.take_about(40, 40), (SampleRange{40, 60})) << "half of it";
  EXPECT_EQ(ranges.take_about(10, 20), (SampleRange{0, 3})) << "small ones for last";
  EXPECT_EQ(ranges.take_about(1, 1), (SampleRange{22, 23}));
  EXPECT_EQ(ranges.take_about(10, 20), (SampleRange{23, 24}));
  EXPECT_FALSE(ranges.take_about(10, 20));
}

TEST(SampleRanges, RefusesWhatIsThereOrNotThere) {
  SampleRanges ranges(SampleRange{5, 10});
  EXPECT_THROW(ranges.add({9, 12}), std::logic_error);
  EXPECT_THROW(ranges.add({0, 6}), std::logic_error);
  EXPECT_THROW(ranges.remove({4, 6}), std::logic_error);
  EXPECT_THROW(ranges.remove({10, 11}), std::logic_error);
}

TEST(SampleRanges, AreASet) {
  std::mt19937_64 random(1);
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 200; ++round) {
    SampleRanges ranges;
    std::set<uint64_t> expected;
    for (int i = 0; i < 100; ++i) {
      const uint64_t begin = draw(40), end = begin + draw(6);
      const auto first = expected.lower_bound(begin), last = expected.lower_bound(end);
      const auto there = static_cast<uint64_t>(std::distance(first, last));
      if (there == 0) {
        ranges.add({begin, end});
        for (uint64_t place = begin; place < end; ++place) expected.insert(place);
      } else if (there == end - begin) {
        ranges.remove({begin, end});
        expected.erase(first, last);
      }
      std::set<uint64_t> found;
      uint64_t before = 0;
      for (const SampleRange& range : ranges.ranges()) {
        EXPECT_TRUE(found.empty() || range.begin > before);
        for (uint64_t place = range.begin; place < range.end; ++place) found.insert(place);
        before = range.end;
      }
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace starling
