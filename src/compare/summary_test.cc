#include "compare/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "compare/compare_json.h"
#include "compare/compare_testing.h"

namespace starling {
namespace {

using testing::HasSubstr;

const StrategySummary& find_strategy(const ConditionSummary& condition, const std::string& label) {
  for (const StrategySummary& one : condition.strategies) {
    if (one.label == label) return one;
  }
  throw std::runtime_error(label + " is not there");
}

TEST(Summary, HasFiguresOverSeeds) {
  const ComparePlan plan = made_up_plan("single,all_reduce,local_sgd", {{.workers = 2}}, 3);
  const Summary summary = summarize(plan, made_up_outcomes(plan));
  ASSERT_EQ(summary.conditions.size(), 1u);
  EXPECT_EQ(summary.done, 9u);
  const StrategySummary& one = find_strategy(summary.conditions[0], "all_reduce");
  ASSERT_EQ(one.seeds.size(), 3u);
  EXPECT_EQ(one.accuracy.count, 3u);
  EXPECT_TRUE(one.accuracy.half);
  EXPECT_EQ(one.curve.size(), 6u);
  EXPECT_NEAR(one.curve[0].seconds, 3 * 1.01, 1e-9) << "the mean over seeds";
  EXPECT_NEAR(one.exposed.mean, 0.38, 1e-9);
  EXPECT_NEAR(one.bytes_per_sample.mean, 25e6 / 60000, 1e-6);
  EXPECT_FALSE(one.disagreement.is_there());
  EXPECT_TRUE(find_strategy(summary.conditions[0], "local_sgd").disagreement.is_there());
}

TEST(Summary, TheGoalIsHalfAPointBelowOneProcess) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}}, 2);
  Outcomes outcomes = made_up_outcomes(plan);
  for (auto& [trial, outcome] : outcomes)
    outcome.result->points.back().accuracy = trial.first == 0 ? 0.8765 : 0.95;
  const Summary summary = summarize(plan, outcomes);
  EXPECT_NEAR(summary.goal, 0.871, 1e-9);
  EXPECT_THAT(summary.goal_reason, HasSubstr("single"));

  ComparePlan without = made_up_plan("all_reduce,sharded", {{.workers = 2}}, 2);
  Outcomes two = made_up_outcomes(without);
  for (auto& [trial, outcome] : two)
    outcome.result->points.back().accuracy = trial.first == 0 ? 0.90 : 0.95;
  EXPECT_NEAR(summarize(without, two).goal, 0.945, 1e-9);
  EXPECT_THAT(summarize(without, two).goal_reason, HasSubstr("sharded"));
  without.goal = 0.5;
  EXPECT_EQ(summarize(without, two).goal, 0.5);
}

TEST(Summary, AGoalInTheFirstEpochIsToldOf) {
  ComparePlan plan = made_up_plan("all_reduce,sharded", {{.workers = 2}}, 2);
  plan.goal = 0.1;
  const Outcomes outcomes = made_up_outcomes(plan);
  EXPECT_THAT(summarize(plan, outcomes).conditions[0].recommendation.result,
              HasSubstr("first epoch"));
  plan.goal = 0.85;
  EXPECT_THAT(summarize(plan, outcomes).conditions[0].recommendation.result,
              testing::Not(HasSubstr("first epoch")));
}

TEST(Summary, OneProcessIsAChoiceOnlyWhereNothingIsInTheWay) {
  const ComparePlan plan =
      made_up_plan("single,all_reduce", {{.workers = 2}, {.workers = 2, .slow = 4}}, 3);
  const Summary summary = summarize(plan, made_up_outcomes(plan));
  EXPECT_EQ(summary.conditions[0].recommendation.strategy, "single");
  EXPECT_EQ(summary.conditions[1].recommendation.strategy, "all_reduce");
  EXPECT_EQ(summary.conditions[1].strategies[0].label, "single") << "it is shown all the same";
  EXPECT_EQ(summary.overall.strategy, "");
}

TEST(Summary, TrialsThatFailedOrAreToComeAreTold) {
  const ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}}, 2);
  Outcomes outcomes = made_up_outcomes(plan);
  outcomes[{1, 1}] = {std::nullopt, "the loss is not finite"};
  outcomes.erase({0, 2});
  const Summary summary = summarize(plan, outcomes);
  EXPECT_EQ(summary.done, 2u);
  EXPECT_EQ(summary.failed, 1u);
  EXPECT_EQ(summary.trials, 4u);
  EXPECT_THAT(find_strategy(summary.conditions[0], "local_sgd").failures,
              testing::ElementsAre("seed 1: the loss is not finite"));
  EXPECT_FALSE(summary.conditions[0].recommendation.sure);
}

TEST(Summary, ASeedThatFailedDidNotReachTheGoal) {
  ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}}, 3);
  plan.goal = 0.85;
  Outcomes outcomes = made_up_outcomes(plan);
  EXPECT_EQ(summarize(plan, outcomes).conditions[0].recommendation.strategy, "all_reduce");
  outcomes[{0, 2}] = {std::nullopt, "the loss is not finite"};
  const ConditionSummary condition = summarize(plan, outcomes).conditions[0];
  EXPECT_EQ(condition.recommendation.strategy, "local_sgd");
  EXPECT_THAT(condition.strategies[0].goal_text(), HasSubstr(" (2 of 3 seeds)"));
}

TEST(Summary, WhatIsOverTheBudgetHasNoAccuracyWithinIt) {
  const ComparePlan plan = made_up_plan("single,all_reduce,local_sgd", {{.workers = 2}}, 2);
  Outcomes outcomes = made_up_outcomes(plan);
  for (const uint64_t seed : plan.seeds) {
    outcomes[{0, seed}].result->points.resize(1);
    outcomes[{0, seed}].result->over_budget = true;
  }
  const Summary summary = summarize(plan, outcomes);
  EXPECT_THAT(summary.goal_reason, testing::Not(HasSubstr("single")));
  const StrategySummary& single = find_strategy(summary.conditions[0], "single");
  EXPECT_EQ(single.over_budget, 2u);
  EXPECT_FALSE(single.accuracy.is_there());
  EXPECT_EQ(single.reached, 0u);
  EXPECT_TRUE(single.curve.empty());
  EXPECT_EQ(single.budget_text(), "its first epoch took longer than the budget");
  EXPECT_NE(summary.conditions[0].recommendation.strategy, "single");
  const Json json = parse_json(summary_to_json(summary)).at("conditions").at(0).at("strategies");
  EXPECT_EQ(json.at(0).at("seeds_over_budget"), 2);
  EXPECT_EQ(json.at(0).at("seeds").at(0).at("over_budget"), true);
  EXPECT_EQ(json.at(1).at("seeds").at(0).at("over_budget"), false);
}

TEST(CompareJson, HasEveryFieldThatIsPromised) {
  const ComparePlan plan = made_up_plan("single,all_reduce,parameter_server:async,local_sgd",
                                        {{.workers = 2, .slow = 4, .link_rate = "100mbit"}}, 2);
  const Json json = parse_json(summary_to_json(summarize(plan, made_up_outcomes(plan))));
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.at("job"), plan.job.name);
  EXPECT_EQ(json.at("trials").at("done"), 8);
  EXPECT_TRUE(json.at("goal").at("accuracy").is_number());
  const Json& condition = json.at("conditions").at(0);
  EXPECT_EQ(condition.at("workers"), 2);
  EXPECT_EQ(condition.at("slow_worker"), 4);
  EXPECT_EQ(condition.at("link_rate"), "100mbit");
  EXPECT_TRUE(condition.at("link_delay").is_null());
  EXPECT_EQ(condition.at("recommendation").at("strategy"), "all_reduce");
  const Json& one = condition.at("strategies").at(2);
  EXPECT_EQ(one.at("strategy"), "parameter_server async");
  for (const char* figure :
       {"accuracy", "time_to_goal_s", "samples_to_goal", "bytes_to_goal", "samples_per_s",
        "bytes_per_sample", "exposed_communication", "staleness"}) {
    for (const char* field : {"mean", "low", "high", "seeds"})
      EXPECT_TRUE(one.at(figure).at(field).is_number()) << figure << " " << field;
  }
  EXPECT_TRUE(one.at("disagreement").is_null());
  const Json& seed = one.at("seeds").at(1);
  EXPECT_EQ(seed.at("seed"), 2);
  EXPECT_EQ(seed.at("points").size(), 6u);
  for (const char* field : {"seconds", "samples", "bytes", "accuracy"}) {
    EXPECT_TRUE(seed.at("points").at(0).at(field).is_number()) << field;
    EXPECT_TRUE(seed.at("goal").at(field).is_number()) << field;
  }
  EXPECT_TRUE(seed.at("times").at("compute_s").is_number());
}

TEST(CompareJson, NothingMeasuredIsNull) {
  const ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}}, 2);
  const Json json = parse_json(summary_to_json(summarize(plan, {})));
  EXPECT_TRUE(json.at("recommendation").at("strategy").is_null());
  EXPECT_TRUE(json.at("conditions").at(0).at("strategies").at(0).at("accuracy").is_null());
}

}  // namespace
}  // namespace starling
