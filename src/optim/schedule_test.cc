#include <gtest/gtest.h>

#include <cmath>

#include "starling/optimizer.h"

namespace starling {
namespace {

TEST(Schedule, ConstantIsTheLearningRateAtEveryStep) {
  const Optimizer optimizer = adam(0.5);
  EXPECT_EQ(rate(optimizer, 0, 10), 0.5);
  EXPECT_EQ(rate(optimizer, 1000, 10), 0.5);
}

TEST(Schedule, WarmUpRisesInEqualStepsToTheLearningRate) {
  const Optimizer optimizer = sgd(2.0, {.schedule = constant({.warmup_steps = 4})});
  EXPECT_DOUBLE_EQ(rate(optimizer, 0, 10), 0.5);
  EXPECT_DOUBLE_EQ(rate(optimizer, 1, 10), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 3, 10), 2.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 4, 10), 2.0);
}

TEST(Schedule, StepMultipliesByGammaEverySoManySteps) {
  const Optimizer optimizer = sgd(1.0, {.schedule = step_decay({.every = 10, .gamma = 0.5})});
  EXPECT_DOUBLE_EQ(rate(optimizer, 0, 100), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 9, 100), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 10, 100), 0.5);
  EXPECT_DOUBLE_EQ(rate(optimizer, 29, 100), 0.25);
  EXPECT_DOUBLE_EQ(rate(optimizer, 30, 100), 0.125);
}

TEST(Schedule, StepMultipliesByGammaAtMilestones) {
  const Optimizer optimizer =
      sgd(1.0, {.schedule = step_decay({.milestones = {5, 8}, .gamma = 0.1, .warmup_steps = 2})});
  EXPECT_DOUBLE_EQ(rate(optimizer, 0, 10), 0.5);
  EXPECT_DOUBLE_EQ(rate(optimizer, 4, 10), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 5, 10), 0.1);
  EXPECT_DOUBLE_EQ(rate(optimizer, 7, 10), 0.1);
  EXPECT_DOUBLE_EQ(rate(optimizer, 8, 10), 0.01);
  EXPECT_DOUBLE_EQ(rate(optimizer, 1000, 10), 0.01);
}

TEST(Schedule, CosineFallsFromTheLearningRateToItsFloor) {
  const Optimizer optimizer = adam(1.0, {.schedule = cosine({.floor = 0.2})});
  EXPECT_DOUBLE_EQ(rate(optimizer, 0, 100), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 50, 100), 0.6);
  EXPECT_NEAR(rate(optimizer, 25, 100), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(rate(optimizer, 100, 100), 0.2);
  EXPECT_DOUBLE_EQ(rate(optimizer, 500, 100), 0.2);
}

TEST(Schedule, CosineStartsAfterTheWarmUp) {
  const Optimizer optimizer = adam(1.0, {.schedule = cosine({.warmup_steps = 20})});
  EXPECT_DOUBLE_EQ(rate(optimizer, 0, 100), 0.05);
  EXPECT_DOUBLE_EQ(rate(optimizer, 19, 100), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 20, 100), 1.0);
  EXPECT_DOUBLE_EQ(rate(optimizer, 60, 100), 0.5);
  EXPECT_NEAR(rate(optimizer, 100, 100), 0.0, 1e-15);
  EXPECT_DOUBLE_EQ(rate(optimizer, 9, 10), 0.5) << "a run that ends before its warm-up";
}

}  // namespace
}  // namespace starling
