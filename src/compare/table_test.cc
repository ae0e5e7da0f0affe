#include "compare/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/compare_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Table, SaysHowManySeedsReachedTheGoal) {
  ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}}, 3);
  plan.goal = 0.85;
  Outcomes outcomes = made_up_outcomes(plan);
  outcomes[{0, 1}].result->points.resize(1);
  EXPECT_THAT(summary_to_text(summarize(plan, outcomes)),
              AllOf(ContainsRegex("  all_reduce .* s ± .* \\(2 of 3 seeds\\) "),
                    HasSubstr("  use local_sgd: reaches 85.0% in"), HasSubstr("  not sure: "),
                    Not(HasSubstr("under all conditions"))));
}

TEST(Table, WhatCannotBeChosenIsCalledAReference) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2, .slow = 4}}, 2);
  EXPECT_THAT(summary_to_text(summarize(plan, made_up_outcomes(plan))),
              HasSubstr("\n  single (reference)  "));
  const ComparePlan plain = made_up_plan("single,all_reduce", {{.workers = 2}}, 2);
  EXPECT_THAT(summary_to_text(summarize(plain, made_up_outcomes(plain))),
              Not(HasSubstr("(reference)")));
}

TEST(Table, WhatIsOverTheBudgetHasNoFigures) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}}, 2);
  Outcomes outcomes = made_up_outcomes(plan);
  outcomes[{1, 1}].result->over_budget = true;
  EXPECT_THAT(
      summary_to_text(summarize(plan, outcomes)),
      HasSubstr("  all_reduce  its first epoch took longer than the budget (1 of 2 seeds)"));
}

TEST(Table, OverallIsSureInWords) {
  ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}, {.workers = 4}}, 3);
  plan.goal = 0.85;
  Outcomes outcomes = made_up_outcomes(plan);
  EXPECT_THAT(summary_to_text(summarize(plan, outcomes)),
              HasSubstr("\nunder all conditions: all_reduce (sure)\n"));
  outcomes.erase({1, 3});
  EXPECT_THAT(summary_to_text(summarize(plan, outcomes)),
              HasSubstr("\nunder all conditions: all_reduce (not sure)\n"));
  for (const uint64_t seed : plan.seeds) outcomes.erase({1, seed});
  EXPECT_THAT(summary_to_text(summarize(plan, outcomes)),
              HasSubstr("\nunder all conditions: not all conditions have been measured\n"));
}

}  // namespace
}  // namespace starling
