#include "compare/recommend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kGoal = 0.88;

Candidate reaching(const std::string& label, double seconds, double half, size_t seeds = 3) {
  std::optional<double> interval;
  if (seeds > 1) interval = half;
  return {.label = label,
          .seeds = seeds,
          .reached = seeds,
          .accuracy = {seeds, 0.9, interval ? std::optional(0.01) : std::nullopt},
          .time_to_goal = {seeds, seconds, interval}};
}

Candidate missing(const std::string& label, double accuracy, double half, size_t reached = 0) {
  return {.label = label,
          .seeds = 3,
          .reached = reached,
          .accuracy = {3, accuracy, half},
          .time_to_goal = {reached, 1, {}}};
}

TEST(Recommend, AClearWinnerIsSure) {
  const Recommendation best = recommend(
      {reaching("slow", 86, 5), reaching("quick", 41, 3), reaching("slower", 200, 9)}, kGoal, true);
  EXPECT_EQ(best.strategy, "quick");
  EXPECT_EQ(best.next, "slow");
  EXPECT_TRUE(best.reaches_goal);
  EXPECT_TRUE(best.sure);
  EXPECT_EQ(best.result,
            "reaches 88.0% in 41.0 s ± 3.0, 2.1 times sooner than slow (86.0 s ± 5.0)");
}

TEST(Recommend, IntervalsThatOverlapAreNotSure) {
  const Recommendation best = recommend({reaching("a", 41, 3), reaching("b", 45, 2)}, kGoal, true);
  EXPECT_EQ(best.strategy, "a");
  EXPECT_FALSE(best.sure);
  EXPECT_THAT(best.reason, AllOf(HasSubstr("overlap"), HasSubstr("--seeds 5")));
}

TEST(Recommend, AWideIntervalFurtherBehindIsLookedAtToo) {
  const Recommendation best = recommend(
      {reaching("a", 41, 3), reaching("b", 50, 2), reaching("wide", 60, 40)}, kGoal, true);
  EXPECT_EQ(best.next, "b");
  EXPECT_FALSE(best.sure);
  EXPECT_THAT(best.reason, HasSubstr("wide"));
}

TEST(Recommend, NearlyTheSameTimeIsSaidSo) {
  EXPECT_THAT(recommend({reaching("a", 41, 3), reaching("b", 42, 2)}, kGoal, true).result,
              HasSubstr("as soon as b"));
}

TEST(Recommend, AGoalThatIsReachedInTheFirstEpochIsTooLow) {
  Candidate quick = reaching("quick", 41, 3);
  quick.in_first_epoch = true;
  EXPECT_THAT(recommend({quick, reaching("slow", 86, 5)}, kGoal, true).result,
              HasSubstr("a higher --goal would tell more"));
}

TEST(Recommend, OneSeedIsNeverSure) {
  const Recommendation best =
      recommend({reaching("a", 1, 0, 1), reaching("b", 100, 0, 1)}, kGoal, true);
  EXPECT_EQ(best.strategy, "a");
  EXPECT_FALSE(best.sure);
  EXPECT_THAT(best.reason, AllOf(HasSubstr("one seed"), HasSubstr("--seeds 3")));
}

TEST(Recommend, WithoutTheGoalAccuracyDecides) {
  const Recommendation best =
      recommend({missing("worse", 0.80, 0.01), missing("better", 0.85, 0.01, 2)}, kGoal, true);
  EXPECT_EQ(best.strategy, "better");
  EXPECT_FALSE(best.reaches_goal) << "with two of three seeds it is not reached";
  EXPECT_TRUE(best.sure);
  EXPECT_THAT(best.result, AllOf(HasSubstr("none reaches 88.0%"), HasSubstr("85.00%")));
  EXPECT_FALSE(recommend({missing("a", 0.80, 0.01), missing("b", 0.81, 0.01)}, kGoal, true).sure);
}

TEST(Recommend, WhoReachesTheGoalComesBeforeWhoDoesNot) {
  const Recommendation best =
      recommend({missing("almost", 0.95, 0.01, 2), reaching("always", 500, 5)}, kGoal, true);
  EXPECT_EQ(best.strategy, "always");
  EXPECT_THAT(best.result, HasSubstr("no other"));
}

TEST(Recommend, WhoReachesTheGoalWithSomeSeedsMightBeBetter) {
  Candidate some = missing("some", 0.95, 0.01, 2);
  const Recommendation best = recommend({some, reaching("always", 500, 5)}, kGoal, true);
  EXPECT_FALSE(best.sure);
  EXPECT_EQ(best.reason, "some reaches it with 2 of 3 seeds; run again with --seeds 5");
  some.time_to_goal = {2, 600, 20};
  EXPECT_TRUE(recommend({some, reaching("always", 500, 5)}, kGoal, true).sure)
      << "with more seeds it would be slower all the same";
  EXPECT_TRUE(recommend({missing("never", 0.8, 0.01), reaching("a", 500, 5)}, kGoal, true).sure);
}

TEST(Recommend, SeedsThatFailedDidNotReachTheGoal) {
  Candidate quick = reaching("quick", 10, 1);
  quick.failed = 2;
  const Recommendation best = recommend({quick, reaching("slow", 86, 5)}, kGoal, true);
  EXPECT_EQ(best.strategy, "slow");
  EXPECT_THAT(best.reason, HasSubstr("quick reaches it with 3 of 5 seeds"));
  const Recommendation only = recommend({quick}, kGoal, true);
  EXPECT_FALSE(only.reaches_goal);
  EXPECT_FALSE(only.sure);
  EXPECT_THAT(only.reason, HasSubstr("2 of its 5 seeds failed"));
}

TEST(Recommend, WhoFailedComesLastByAccuracy) {
  Candidate failing = missing("failing", 0.87, 0.001);
  failing.failed = 1;
  EXPECT_EQ(recommend({failing, missing("a", 0.80, 0.01)}, kGoal, true).strategy, "a");
  Candidate worse = missing("worse", 0.80, 0.001);
  worse.failed = 1;
  EXPECT_EQ(recommend({worse, failing}, kGoal, true).strategy, "failing");
  EXPECT_FALSE(recommend({worse, failing}, kGoal, true).sure);
}

TEST(Recommend, WhatHasNoIntervalDoesNotOverlap) {
  const Candidate one{.label = "one", .seeds = 1, .failed = 2, .accuracy = {1, 0.5, {}}};
  const Recommendation best = recommend({missing("a", 0.80, 0.01), one}, kGoal, true);
  EXPECT_FALSE(best.sure);
  EXPECT_THAT(best.reason, AllOf(HasSubstr("one has one seed only"), Not(HasSubstr("overlap"))));
}

TEST(Recommend, WhoIsOverTheBudgetIsNotChosen) {
  Candidate over = missing("over", 0.99, 0.001);
  over.over_budget = true;
  EXPECT_EQ(recommend({over, missing("a", 0.80, 0.01)}, kGoal, true).strategy, "a");
  EXPECT_EQ(recommend({over}, kGoal, true).strategy, "");
  EXPECT_THAT(recommend({over}, kGoal, true).reason, HasSubstr("within the budget"));
}

TEST(Recommend, AReferenceIsNotChosen) {
  Candidate single = reaching("single", 1, 0.1);
  single.reference = true;
  EXPECT_EQ(recommend({single, reaching("a", 41, 3)}, kGoal, true).strategy, "a");
}

TEST(Recommend, BeforeTheEndNothingIsSure) {
  const Recommendation best =
      recommend({reaching("a", 1, 0.1), reaching("b", 100, 1)}, kGoal, false);
  EXPECT_EQ(best.strategy, "a");
  EXPECT_FALSE(best.sure);
  EXPECT_THAT(best.reason, HasSubstr("still to come"));
  EXPECT_EQ(recommend({}, kGoal, false).strategy, "");
  EXPECT_EQ(recommend({Candidate{.label = "failed"}}, kGoal, true).strategy, "");
}

TEST(Recommend, OverallIsWhatAllConditionsHaveInCommon) {
  const Recommendation a{.strategy = "a", .sure = true, .measured = true},
      b{.strategy = "b", .sure = true, .measured = true};
  Recommendation unsure = a;
  unsure.sure = false;
  EXPECT_EQ(recommend_overall({a, a}).strategy, "a");
  EXPECT_TRUE(recommend_overall({a, a}).sure);
  EXPECT_FALSE(recommend_overall({a, unsure}).sure);
  EXPECT_EQ(recommend_overall({a, b}).strategy, "");
  EXPECT_THAT(recommend_overall({a, b}).text, HasSubstr("depends"));
  EXPECT_EQ(recommend_overall({a}).text, "a");
  EXPECT_EQ(recommend_overall({}).strategy, "");
}

TEST(Recommend, OverallIsNotSaidBeforeEverythingWasMeasured) {
  const Recommendation a{.strategy = "a", .measured = true}, part{.strategy = "b"}, none;
  for (const Recommendation& other : {part, none}) {
    EXPECT_EQ(recommend_overall({a, other}).text, "not all conditions have been measured");
    EXPECT_EQ(recommend_overall({other, a}).strategy, "");
  }
  EXPECT_TRUE(recommend({reaching("a", 1, 0.1)}, kGoal, false).measured);
  EXPECT_FALSE(recommend({reaching("a", 1, 0.1), {.label = "b"}}, kGoal, false).measured);
}

}  // namespace
}  // namespace starling
