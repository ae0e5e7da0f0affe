#include "starling/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::HasSubstr;

TEST(Optimizer, MakersTakeDesignatedOptions) {
  const Optimizer optimizer = adam(
      1e-3, {.weight_decay = 0.01, .clip_norm = 1.0, .schedule = cosine({.warmup_steps = 100})});
  EXPECT_EQ(optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(optimizer.learning_rate, 1e-3);
  EXPECT_EQ(optimizer.weight_decay, 0.01);
  EXPECT_EQ(optimizer.clip_norm, 1.0);
  EXPECT_FALSE(optimizer.clip_value);
  EXPECT_EQ(optimizer.schedule.warmup_steps, 100u);
  EXPECT_EQ(nesterov(0.1, {.momentum = 0.8}).momentum, 0.8);
  EXPECT_EQ(adam(0.1, {.beta1 = 0.5, .beta2 = 0.6, .epsilon = 1e-6}).beta2, 0.6);
  EXPECT_EQ(adamw(0.1).weight_decay, 0.01);
}

TEST(Optimizer, RefusesValuesOutOfRangeAndNamesTheRange) {
  EXPECT_THAT(refusal([] { sgd(0); }), HasSubstr("learning_rate = 0 is out of range | "
                                                 "learning_rate must be greater than 0"));
  EXPECT_THAT(refusal([] { sgd(std::nan("")); }), HasSubstr("learning_rate = nan"));
  EXPECT_THAT(refusal([] { sgd(1e300); }), HasSubstr("learning_rate"));
  EXPECT_THAT(refusal([] { momentum(0.1, {.momentum = 1}); }),
              HasSubstr("momentum must be at least 0 and less than 1"));
  EXPECT_THAT(refusal([] { adam(0.1, {.beta1 = -0.1}); }), HasSubstr("beta1 = -0.1"));
  EXPECT_THAT(refusal([] { adam(0.1, {.beta2 = 1}); }), HasSubstr("beta2 = 1"));
  EXPECT_THAT(refusal([] { adam(0.1, {.epsilon = 1e-50}); }), HasSubstr("epsilon = 1e-50"));
  EXPECT_THAT(refusal([] { sgd(0.1, {.weight_decay = -1}); }), HasSubstr("weight_decay = -1"));
  EXPECT_THAT(refusal([] { sgd(0.1, {.clip_value = 0}); }), HasSubstr("clip_value = 0"));
  EXPECT_THAT(refusal([] { sgd(0.1, {.clip_norm = -1}); }), HasSubstr("clip_norm = -1"));
  EXPECT_THAT(refusal([] { sgd(0.1, {.clip_value = 1, .clip_norm = 1}); }), HasSubstr("both set"));
}

TEST(Optimizer, RefusesSchedulesThatMakeNoSense) {
  EXPECT_THAT(refusal([] { cosine({.floor = 1.5}); }), HasSubstr("floor = 1.5"));
  EXPECT_THAT(refusal([] { step_decay({.every = 1, .gamma = 0}); }), HasSubstr("gamma = 0"));
  EXPECT_THAT(refusal([] { step_decay({}); }), HasSubstr("either every or milestones"));
  EXPECT_THAT(refusal([] { step_decay({.every = 1, .milestones = {1}}); }),
              HasSubstr("either every or milestones"));
  EXPECT_THAT(refusal([] { step_decay({.milestones = {5, 3}}); }), HasSubstr("5 before 3"));
  Optimizer by_hand = sgd(0.1);
  by_hand.schedule.kind = ScheduleKind::kStep;
  EXPECT_THAT(refusal([&] { validate(by_hand); }), HasSubstr("either every or milestones"));
}

TEST(Optimizer, NamesGoBothWays) {
  ASSERT_EQ(optimizer_names().size(), 5u);
  for (std::string_view name : optimizer_names()) {
    EXPECT_EQ(optimizer_name(optimizer_from_name(name).kind), name);
  }
  for (std::string_view name : schedule_names()) {
    EXPECT_EQ(schedule_name(schedule_from_name(name)), name);
  }
  EXPECT_EQ(optimizer_from_name("adamw", 0.5).weight_decay, 0.01);
  EXPECT_THAT(
      refusal([] { optimizer_from_name("adma"); }),
      HasSubstr("\"adma\" is not an optimizer | use one of: sgd, momentum, nesterov, adam, adamw"));
  EXPECT_THAT(refusal([] { schedule_from_name("linear"); }), HasSubstr("constant, step, cosine"));
}

}  // namespace
}  // namespace starling
