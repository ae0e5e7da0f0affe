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

}  // namespace
}  // namespace starling
