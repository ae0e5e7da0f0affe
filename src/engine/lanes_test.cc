#include "engine/lanes.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <stdexcept>

namespace starling {
namespace {

TEST(Lanes, EveryLaneRunsOnceEachTime) {
  for (int count : {1, 2, 3, 8}) {
    Lanes lanes(count);
    std::vector<int> calls(static_cast<size_t>(count), 0);
    for (int round = 0; round < 1000; ++round) {
      lanes.run([&](int lane) { ++calls[static_cast<size_t>(lane)]; });
    }
    for (int c : calls) EXPECT_EQ(c, 1000);
  }
}

TEST(Lanes, EachHasOneOpenMpThreadAndTheCallerKeepsItsOwn) {
  omp_set_num_threads(2);
  Lanes lanes(3);
  std::vector<int> threads(3);
  lanes.run([&](int lane) { threads[static_cast<size_t>(lane)] = omp_get_max_threads(); });
  EXPECT_EQ(threads, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(omp_get_max_threads(), 2);
}

TEST(Lanes, WhatALaneThrowsReachesTheCaller) {
  Lanes lanes(4);
  EXPECT_THROW(lanes.run([](int lane) {
    if (lane == 2) throw std::runtime_error("lane 2");
  }),
               std::runtime_error);
  int calls = 0;
  std::atomic<int> sum{0};
  lanes.run([&](int) { sum.fetch_add(1); });
  calls = sum;
  EXPECT_EQ(calls, 4);
}

TEST(Lanes, TellWhenArithmeticLeavesTheFiniteNumbers) {
  Lanes lanes(3);
  const auto raised_by = [&](float a, float (*operation)(float, float), float b) {
    volatile float x = a, y = b, result = 0;  // computed at run time
    lanes.run([&](int lane) {
      if (lane == 2) result = operation(x, y);
    });
    return lanes.raised();
  };
  const auto times = [](float a, float b) { return a * b; };
  const auto over = [](float a, float b) { return a / b; };
  EXPECT_TRUE(raised_by(1e30f, times, 1e30f));
  EXPECT_FALSE(raised_by(1e-30f, times, 1e-30f)) << "too small is no harm, and flags begin anew";
  EXPECT_TRUE(raised_by(1, over, 0));
  EXPECT_TRUE(raised_by(0, over, 0));
  EXPECT_FALSE(raised_by(1, over, 3));
}

}  // namespace
}  // namespace starling
