#include "cluster/core_plan.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

using Numbers = std::vector<int>;

// As most machines count: the second threads of all cores after the first ones.
std::vector<Cpu> second_threads_last() {
  return {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 0}, {5, 1}, {6, 2}, {7, 3}};
}
// As many virtual machines do.
std::vector<Cpu> threads_side_by_side() {
  return {{0, 0}, {1, 0}, {2, 2}, {3, 2}, {4, 4}, {5, 4}, {6, 6}, {7, 6}};
}

TEST(CorePlan, WorkersHaveCoresOfTheirOwn) {
  EXPECT_EQ(place_worker(second_threads_last(), 4, 1, 3), Numbers({3}));
  EXPECT_EQ(place_worker(second_threads_last(), 2, 2, 1), Numbers({2, 3}));
  EXPECT_EQ(place_worker(threads_side_by_side(), 4, 1, 1), Numbers({2}));
  EXPECT_EQ(place_worker(threads_side_by_side(), 2, 2, 1), Numbers({4, 6}));
}

TEST(CorePlan, BothThreadsOfACoreBelongToOneWorker) {
  EXPECT_EQ(place_worker(second_threads_last(), 4, 2, 1), Numbers({1, 5}));
  EXPECT_EQ(place_worker(threads_side_by_side(), 2, 4, 1), Numbers({4, 5, 6, 7}));
}

TEST(CorePlan, NoLanesGivenIsAShareOfAll) {
  EXPECT_EQ(place_worker(second_threads_last(), 2, 0, 0), Numbers({0, 4, 1, 5}));
  EXPECT_EQ(place_worker({{0, 0}, {1, 1}, {2, 2}}, 2, 0, 1), Numbers({1}));
}

TEST(CorePlan, TooFewForAllMeansAnyForEach) {
  EXPECT_EQ(place_worker(second_threads_last(), 3, 3, 0), Numbers());
  EXPECT_EQ(place_worker(second_threads_last(), 9, 0, 0), Numbers());
  EXPECT_EQ(place_worker({}, 1, 0, 0), Numbers());
}

TEST(CorePlan, OnlyWhatMayBeUsedIsUsed) {
  EXPECT_EQ(place_worker({{3, 3}, {6, 2}}, 2, 1, 0), Numbers({6}));
  EXPECT_EQ(place_worker({{3, 3}, {6, 2}}, 2, 1, 1), Numbers({3}));
  EXPECT_FALSE(available_cpus().empty());
}

}  // namespace
}  // namespace starling
