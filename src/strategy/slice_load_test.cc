#include "strategy/slice_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace starling {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

ParameterSpace large_space() {
  ParameterSpace space;
  space.add("weight", {400 * static_cast<int64_t>(kBlockElements)}, {});
  return space;
}

// Of servers with these speeds, that have served for a second.
std::vector<ServedLoad> served(std::initializer_list<double> speeds) {
  std::vector<ServedLoad> loads;
  for (const double speed : speeds) loads.push_back({.seconds = 1, .floats = speed});
  return loads;
}

TEST(SliceLoad, SlicesFollowTheSpeedOfThoseWhoKeepThem) {
  const ParameterSpace space = large_space();
  const Ownership alone(space, {0, 1, 2}, 0);
  EXPECT_THAT(
      shares_by_load(alone, served({4, 4, 1})),
      ElementsAre(DoubleNear(4.0 / 9, 0.01), DoubleNear(4.0 / 9, 0.01), DoubleNear(1.0 / 9, 0.01)));
  // The slow one has the copy of the slice before its own.
  const std::vector<double> shares =
      shares_by_load(Ownership(space, {0, 1, 2}, 1), served({4, 4, 1}));
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_LT((shares[2] + shares[1]) / 1, 0.5 * (2.0 / 3) / 1) << "half of what it took";
  EXPECT_LT((shares[0] + shares[2]) / 4, 0.5 * (2.0 / 3) / 1);
}

TEST(SliceLoad, WhatWouldGainLittleStays) {
  const ParameterSpace space = large_space();
  EXPECT_THAT(shares_by_load(Ownership(space, {0, 1, 2}, 1), served({4, 4, 3.8})), IsEmpty());
  // Both keep all of it, whatever is whose.
  EXPECT_THAT(shares_by_load(Ownership(space, {0, 1}, 1), served({4, 1})), IsEmpty());
  EXPECT_THAT(shares_by_load(Ownership(space, {0}, 1), served({4})), IsEmpty());
}

TEST(SliceLoad, TooLittleIsKnownAtFirst) {
  const ParameterSpace space = large_space();
  std::vector<ServedLoad> loads = served({4, 4, 1});
  loads[1].seconds = 0.0001;
  EXPECT_THAT(shares_by_load(Ownership(space, {0, 1, 2}, 0), loads), IsEmpty());
}

TEST(SliceLoad, AnOwnershipHasTheSharesThatItIsGiven) {
  const ParameterSpace space = large_space();
  const Ownership owners(space, {3, 5, 9}, 1, {}, {0.5, 0.2, 0.3});
  for (const auto& [slice, share] : {std::pair{0, 0.5}, {1, 0.2}, {2, 0.3}}) {
    EXPECT_NEAR(static_cast<double>(owners.floats(static_cast<size_t>(slice)).size()),
                share * static_cast<double>(space.total_floats()), kBlockElements);
  }
  EXPECT_EQ(owners.floats(2).end, space.total_floats());
  EXPECT_EQ(Ownership::restored(space, {3, 5, 9}, 1, {}, owners.block_cuts()), owners);
}

}  // namespace
}  // namespace starling
