#include "strategy/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

using testing::ElementsAre;

// A large parameter and many small ones.
ParameterSpace uneven_space() {
  ParameterSpace space;
  for (int i = 0; i < 30; ++i) space.add("bias" + std::to_string(i), {7}, {});
  space.add("weight", {100, 900}, {});
  return space;
}

TEST(Ownership, SlicesCoverTheSpaceAndAreOfAboutEqualSize) {
  const ParameterSpace space = uneven_space();
  for (const int workers : {1, 2, 3, 4, 7, 8}) {
    std::vector<int> members;
    for (int name = 0; name < workers; ++name) members.push_back(name);
    const Ownership owners(space, members, 1);
    size_t block = 0, offset = 0;
    for (size_t i = 0; i < owners.slices(); ++i) {
      EXPECT_EQ(owners.blocks(i).first, block);
      EXPECT_EQ(owners.floats(i).begin, offset);
      block = owners.blocks(i).last;
      offset = owners.floats(i).end;
      EXPECT_NEAR(static_cast<double>(owners.floats(i).size()),
                  static_cast<double>(space.total_floats()) / workers, kBlockElements);
    }
    EXPECT_EQ(block, space.blocks().size());
    EXPECT_EQ(offset, space.total_floats());
  }
}

TEST(Ownership, MoreWorkersThanBlocksLeaveSomeWithNothing) {
  ParameterSpace space;
  space.add("weight", {5}, {});
  const Ownership owners(space, {0, 1, 2}, 1);
  size_t floats = 0;
  for (size_t i = 0; i < 3; ++i) floats += owners.floats(i).size();
  EXPECT_EQ(floats, space.total_floats());
}

TEST(Ownership, TheNextWorkerKeepsTheCopy) {
  const ParameterSpace space = uneven_space();
  const Ownership owners(space, {0, 2, 5}, 1);
  EXPECT_THAT(owners.kept_by(1), ElementsAre(owners.floats(1), owners.floats(0)));
  EXPECT_THAT(owners.kept_by(0), ElementsAre(owners.floats(0), owners.floats(2)));
  EXPECT_THAT(Ownership(space, {0, 2, 5}, 0).kept_by(1), ElementsAre(owners.floats(1)));
  EXPECT_THAT(Ownership(space, {4}, 1).kept_by(0), ElementsAre(Span{0, space.total_floats()}));
}

TEST(Ownership, WhoKeepsCopiesOnlyHasAnEmptySlice) {
  const ParameterSpace space = uneven_space();
  const Span whole{0, space.total_floats()};
  const Ownership owners(space, {0, 3}, 1, {0});
  EXPECT_EQ(owners.floats(0).size(), 0u);
  EXPECT_EQ(owners.floats(1), whole);
  EXPECT_EQ(owners.slice_of(3), 1u);
  EXPECT_EQ(owners.slice_of(1), std::nullopt);
  EXPECT_THAT(owners.kept_by(0), testing::Contains(whole));
  EXPECT_EQ(owners.holder(1, std::vector{0}), 0) << "when the only server is lost";
}

TEST(Ownership, ALostSliceIsGivenByWhoHasTheCopy) {
  const ParameterSpace space = uneven_space();
  const Ownership owners(space, {0, 1, 2, 3}, 1);
  const std::vector<int> not_adjacent{1, 3}, adjacent{0, 3};
  EXPECT_EQ(owners.holder(0, not_adjacent), 1);
  EXPECT_EQ(owners.holder(1, not_adjacent), 1);
  EXPECT_EQ(owners.holder(2, not_adjacent), 3);
  EXPECT_EQ(owners.holder(1, adjacent), std::nullopt) << "1 and 2 are gone";
  EXPECT_EQ(owners.holder(2, adjacent), 3);
  const std::vector<int> without_last{0, 1, 2};
  EXPECT_EQ(owners.holder(3, without_last), 0);
  EXPECT_EQ(Ownership(space, {0, 1, 2, 3}, 0).holder(3, without_last), std::nullopt);
}

}  // namespace
}  // namespace starling
