#include "compare/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace starling {
namespace {

TEST(Estimate, IntervalIsStudents) {
  // 1, 2, 3, 4: s = 1.2910, s/√n = 0.6455, t(3) = 3.182.
  const Estimate four = estimate(std::vector<double>{1, 2, 3, 4});
  EXPECT_EQ(four.count, 4u);
  EXPECT_DOUBLE_EQ(four.mean, 2.5);
  ASSERT_TRUE(four.half);
  EXPECT_NEAR(*four.half, 2.0542, 1e-3);
  EXPECT_NEAR(four.low(), 0.4458, 1e-3);
  EXPECT_NEAR(four.high(), 4.5542, 1e-3);
}

TEST(Estimate, OneSeedHasNoInterval) {
  const Estimate one = estimate(std::vector<double>{7});
  EXPECT_TRUE(one.is_there());
  EXPECT_DOUBLE_EQ(one.mean, 7);
  EXPECT_FALSE(one.half);
  EXPECT_FALSE(estimate({}).is_there());
}

TEST(Estimate, NumbersThatAreNotFiniteAreLeftOut) {
  const Estimate two = estimate(std::vector<double>{1, NAN, 3, INFINITY});
  EXPECT_EQ(two.count, 2u);
  EXPECT_DOUBLE_EQ(two.mean, 2);
  EXPECT_NEAR(*two.half, 12.706, 1e-3);
}

TEST(Estimate, StudentsNumberFallsToThatOfTheNormalDistribution) {
  EXPECT_NEAR(student_t_95(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t_95(4), 2.776, 1e-3);
  EXPECT_NEAR(student_t_95(12), 2.179, 2e-3);
  EXPECT_NEAR(student_t_95(30), 2.042, 1e-3);
  EXPECT_NEAR(student_t_95(100000), 1.960, 1e-3);
  for (size_t degrees = 1; degrees < 40; ++degrees)
    EXPECT_GT(student_t_95(degrees), student_t_95(degrees + 1)) << degrees;
}

TEST(Estimate, SurelyLessNeedsIntervalsApart) {
  const Estimate low{3, 1, 0.4}, middle{3, 1.5, 0.2}, high{3, 3, 1}, one{1, 0.1, {}};
  EXPECT_TRUE(is_surely_less(low, high));
  EXPECT_FALSE(is_surely_less(low, middle));
  EXPECT_FALSE(is_surely_less(high, low));
  EXPECT_FALSE(is_surely_less(one, high)) << "one seed has no interval";
}

}  // namespace
}  // namespace starling
