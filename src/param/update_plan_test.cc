#include "param/update_plan.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling {
namespace {

Push push_of(int worker, uint64_t samples, uint64_t version, bool finite = true) {
  return {.worker = worker,
          .samples = {0, samples},
          .version = version,
          .finite = finite,
          .seconds = 1,
          .sums = {}};
}

UpdateRules rules_of(const Optimizer& optimizer) {
  return {.optimizer = optimizer,
          .batch = 64,
          .usual = 16,
          .total_steps = 100,
          .apart = 1,
          .damping = 0};
}

TEST(UpdatePlan, TheRateFollowsTheSamplesOfAnUpdate) {
  const std::vector<Push> pushes = {push_of(3, 10, 7), push_of(1, 6, 7)};
  const UpdatePlan plan = plan_update(rules_of(sgd(0.5)), pushes, 7, 0);
  EXPECT_FLOAT_EQ(plan.settings.rate, 0.5f * 16 / 64);
  ASSERT_EQ(plan.parts.size(), 2u);
  EXPECT_EQ(plan.parts[0].worker, 3);
  EXPECT_EQ(plan.parts[0].weight, 10);
  EXPECT_EQ(plan.parts[1].weight, 6);
  const UpdatePlan adaptive = plan_update(rules_of(adam(0.5)), pushes, 7, 0);
  EXPECT_FLOAT_EQ(adaptive.settings.rate, 0.25f);
}

// Two halves of a usual update with the same gradient do what the whole one does, as far as small
// parts of a whole may differ.
TEST(UpdatePlan, APartOfAUpdateCountsAsSuch) {
  for (const Optimizer& optimizer :
       {sgd(1e-3), momentum(1e-3, {.weight_decay = 0.01}), nesterov(1e-3), adam(1e-3)}) {
    SCOPED_TRACE(optimizer_name(optimizer.kind));
    for (const size_t apart : {1, 4, 10}) {
      UpdateRules rules = rules_of(optimizer);
      rules.apart = apart;
      const auto run = [&](uint64_t samples, int updates) {
        float weight = 1, first = 0.5f, second = 0.3f;
        float* states[] = {&first, &second};
        const float value = 0.7f;
        const float* const gradient = &value;
        for (int i = 0; i < updates; ++i) {
          const std::vector<Push> pushes = {push_of(0, samples, 5000)};
          const UpdatePlan plan = plan_update(rules, pushes, 5000, 0);
          EXPECT_TRUE(update_block(plan.settings, {}, {&gradient, 1}, 1, &weight, states));
        }
        return 1 - weight;
      };
      const float whole = run(16, 40);
      EXPECT_NEAR(run(8, 80), whole, 0.05 * whole);
      EXPECT_NEAR(run(1, 640), whole, 0.1 * whole);
    }
  }
}

TEST(UpdatePlan, ASmallGradientsNoiseCountsLess) {
  const std::vector<Push> one = {push_of(0, 1, 0)}, usual = {push_of(0, 16, 0)};
  for (const Optimizer& optimizer : {adam(0.1), adamw(0.1)}) {
    const UpdateSettings small = plan_update(rules_of(optimizer), one, 0, 0).settings;
    EXPECT_NEAR(small.beta1_rest, 0.1 / 16, 1e-3);
    EXPECT_NEAR(small.beta2_rest, 0.001 / 16, 1e-5);
    EXPECT_EQ(plan_update(rules_of(optimizer), usual, 0, 0).settings.beta1, 0.9f);
    EXPECT_EQ(plan_update(rules_of(optimizer), usual, 0, 0).settings.beta2_rest, 0.001f);
  }
  const UpdateSettings small = plan_update(rules_of(momentum(0.1)), one, 0, 0).settings;
  EXPECT_NEAR(small.gradient_scale, 1.0 / 16, 0.01);
  EXPECT_EQ(plan_update(rules_of(momentum(0.1)), usual, 0, 0).settings.gradient_scale, 1);
}

TEST(UpdatePlan, TheScheduleCountsSamples) {
  const Optimizer falling = sgd(1, {.schedule = step_decay({.every = 10, .gamma = 0.5})});
  const std::vector<Push> pushes = {push_of(0, 64, 0)};
  EXPECT_FLOAT_EQ(plan_update(rules_of(falling), pushes, 0, 64 * 10 - 1).settings.rate, 1);
  EXPECT_FLOAT_EQ(plan_update(rules_of(falling), pushes, 0, 64 * 10).settings.rate, 0.5);
}

TEST(UpdatePlan, HowFarWorkersHaveComeCountsWhole) {
  UpdateRules rules = rules_of(nesterov(0.7, {.momentum = 0.9}));
  rules.whole = true;
  for (const uint64_t samples : {1, 16, 1000}) {
    const UpdatePlan plan =
        plan_update(rules, std::vector{push_of(0, samples, 7), push_of(1, 3 * samples, 7)}, 7, 0);
    EXPECT_FLOAT_EQ(plan.settings.rate, 0.7f);
    EXPECT_FLOAT_EQ(plan.settings.momentum, 0.9f);
    EXPECT_EQ(plan.settings.gradient_scale, 1);
    EXPECT_EQ(plan.parts[1].weight, 3 * plan.parts[0].weight);
  }
}

// They have decayed on their way: not even a layer with a decay of its own does it again.
TEST(UpdatePlan, HowFarWorkersHaveComeDoesNotDecay) {
  for (const bool whole : {true, false}) {
    UpdateRules rules = rules_of(sgd(1));
    rules.whole = whole;
    const UpdatePlan plan = plan_update(rules, std::vector{push_of(0, 64, 0)}, 0, 0);
    const float zero = 0;
    const float* const gradient = &zero;
    float weight = 1;
    EXPECT_TRUE(update_block(plan.settings, 0.5, {&gradient, 1}, 1, &weight, nullptr));
    EXPECT_EQ(weight == 1, whole);
  }
}

TEST(UpdatePlan, WhatIsNotFiniteIsLeftOut) {
  const std::vector<Push> pushes = {push_of(0, 32, 0, false), push_of(1, 32, 0)};
  EXPECT_EQ(plan_update(rules_of(sgd(1)), pushes, 0, 0).parts.size(), 1u);
  EXPECT_TRUE(plan_update(rules_of(sgd(1)), std::span(pushes).first(1), 0, 0).parts.empty());
}

TEST(UpdatePlan, DampingIsByTheUpdatesThatWereMissed) {
  UpdateRules rules = rules_of(sgd(1));
  rules.damping = 0.5;
  const auto rate_of = [&](const std::vector<Push>& pushes) {
    return plan_update(rules, pushes, 9, 0).settings.rate;
  };
  EXPECT_FLOAT_EQ(rate_of({push_of(0, 64, 9)}), 1);
  EXPECT_FLOAT_EQ(rate_of({push_of(0, 64, 7)}), 0.5);
  EXPECT_FLOAT_EQ(rate_of({push_of(0, 64, 3)}), 0.25);
  // Of several each counts by its own: rate · share is what a gradient is multiplied by.
  const std::vector<Push> both = {push_of(0, 32, 9), push_of(1, 16, 7)};
  const UpdatePlan plan = plan_update(rules, both, 9, 0);
  const double weights = plan.parts[0].weight + plan.parts[1].weight;
  EXPECT_FLOAT_EQ(static_cast<float>(plan.settings.rate * plan.parts[0].weight / weights), 0.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(plan.settings.rate * plan.parts[1].weight / weights), 0.125f);
}

TEST(UpdatePlan, MomentumIsLoweredAndTheWayStaysAsLong) {
  const auto expect_lowered = [](double momentum, size_t workers, double left) {
    const LoweredMomentum lowered = lower_momentum(momentum, workers);
    EXPECT_NEAR(lowered.momentum, left, 1e-12);
    EXPECT_NEAR(lowered.rate_factor / (1 - lowered.momentum), 1 / (1 - momentum), 1e-9);
  };
  expect_lowered(0.9, 1, 0.9);
  expect_lowered(0.9, 4, 0.6);
  expect_lowered(0.9, 10, 0);
  expect_lowered(0.9, 100, 0);
  expect_lowered(0, 4, 0);
  const std::vector<Push> pushes = {push_of(0, 16, 0)};
  for (const Optimizer& optimizer : {momentum(0.1), nesterov(0.1)}) {
    UpdateRules rules = rules_of(optimizer);
    EXPECT_FLOAT_EQ(plan_update(rules, pushes, 0, 0).settings.momentum, 0.9f);
    EXPECT_FLOAT_EQ(plan_update(rules, pushes, 0, 0).settings.rate, 0.025f);
    rules.apart = 4;
    EXPECT_FLOAT_EQ(plan_update(rules, pushes, 0, 0).settings.momentum, 0.6f);
    EXPECT_FLOAT_EQ(plan_update(rules, pushes, 0, 0).settings.rate, 0.1f);
  }
  for (const Optimizer& optimizer : {sgd(0.1), adam(0.1), adamw(0.1)}) {
    UpdateRules rules = rules_of(optimizer);
    const UpdateSettings before = plan_update(rules, pushes, 0, 0).settings;
    rules.apart = 4;
    const UpdateSettings after = plan_update(rules, pushes, 0, 0).settings;
    EXPECT_EQ(after.rate, before.rate) << optimizer_name(optimizer.kind);
    EXPECT_EQ(after.beta1, before.beta1);
  }
}

}  // namespace
}  // namespace starling
