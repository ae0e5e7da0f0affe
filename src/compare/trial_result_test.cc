#include "compare/trial_result.h"

#include <gtest/gtest.h>

#include "observe/report.h"
#include "starling/history.h"

namespace starling {
namespace {

std::string trial_history() {
  History all;
  all.append({1, 10, 9, {{"train_loss", 1}, {"val_accuracy", 0.5}}, 100, 2, 1000});
  all.append({2, 20, 9, {{"train_loss", 1}, {"val_accuracy", 0.7}}, 200, 4, 1000});
  all.append({3, 30, 9, {{"train_loss", 1}, {"val_accuracy", 0.8}}, 300, 4, 3000});
  return all.to_csv();
}

Report trial_report() {
  Report one;
  one.workers = 2;
  one.servers = 1;
  one.apart = true;
  one.staleness = {5, 3};
  one.disagreement = 0.25;
  one.wall_s = 12;
  one.test_accuracy = 0.75;
  one.times = {
      {.worker = 0, .input = 1, .compute = 4, .communication = 1, .hidden = 2, .waiting = 0},
      {.worker = 1, .input = 3, .compute = 6, .communication = 3, .hidden = 4, .waiting = 2},
      {.worker = 2, .input = 99, .compute = 99}};  // a server
  return one;
}

// Of two workers.
TrialOutcome outcome_of(const std::string& report, const std::string& history, double seconds = 0) {
  return parse_trial(report, history, {.workers = 2, .seconds = seconds});
}

std::optional<TrialResult> result_of(const Report& report, double seconds = 0) {
  return outcome_of(report_to_json(report), trial_history(), seconds).result;
}

TEST(TrialResult, PointsCountFromTheBeginning) {
  const auto result = result_of(trial_report());
  ASSERT_TRUE(result);
  ASSERT_EQ(result->points.size(), 3u);
  EXPECT_EQ(result->points[1].seconds, 6);
  EXPECT_EQ(result->points[1].samples, 200);
  EXPECT_EQ(result->points[1].bytes, 2000);
  EXPECT_EQ(result->last().bytes, 5000);
  EXPECT_EQ(result->last().accuracy, 0.8);
  EXPECT_EQ(result->staleness, (std::vector<uint64_t>{5, 3}));
  EXPECT_EQ(result->disagreement, 0.25);
  EXPECT_EQ(result->test_accuracy, 0.75);
}

TEST(TrialResult, TimesAreTheMeanOverWorkersWithoutServers) {
  const auto result = result_of(trial_report());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->times.input, 2);
  EXPECT_EQ(result->times.compute, 5);
  EXPECT_EQ(result->times.communication, 2);
  EXPECT_EQ(result->times.hidden, 3);
  EXPECT_EQ(result->times.waiting, 1);
  EXPECT_EQ(result->times.all(), 10) << "what is hidden is a part of computing";
}

TEST(TrialResult, TheGoalIsReachedBetweenEpochs) {
  const auto result = result_of(trial_report());
  ASSERT_TRUE(result);
  const auto reached = result->reaches(0.6);
  ASSERT_TRUE(reached);
  EXPECT_NEAR(reached->seconds, 4, 1e-9);
  EXPECT_NEAR(reached->samples, 150, 1e-9);
  EXPECT_NEAR(reached->bytes, 1500, 1e-9);
  EXPECT_EQ(result->reaches(0.4)->seconds, 2) << "the first epoch had it at its end";
  EXPECT_EQ(result->reaches(0.8)->seconds, 10);
  EXPECT_FALSE(result->reaches(0.81));
}

TEST(TrialResult, ABudgetOfTimeCutsTheLineOff) {
  const auto at = [](double seconds) { return result_of(trial_report(), seconds); };
  ASSERT_EQ(at(8)->points.size(), 3u);
  EXPECT_NEAR(at(8)->last().accuracy, 0.75, 1e-9);
  EXPECT_NEAR(at(8)->last().bytes, 3500, 1e-9);
  EXPECT_EQ(at(6)->last().accuracy, 0.7);
  EXPECT_EQ(at(60)->last().accuracy, 0.8) << "it was done before";
  EXPECT_FALSE(at(2)->over_budget);
}

TEST(TrialResult, AFirstEpochThatTakesLongerThanTheBudgetReachesNothing) {
  const auto result = result_of(trial_report(), 1);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->over_budget);
  EXPECT_EQ(result->points.size(), 1u) << "it is all that there is to show";
  EXPECT_FALSE(result->reaches(0.1));
}

TEST(TrialResult, OneThatLostAWorkerIsNone) {
  Report lost = trial_report();
  lost.workers = 1;
  lost.recoveries = {{.lost = {1}}};
  const TrialOutcome outcome = outcome_of(report_to_json(lost), trial_history());
  EXPECT_FALSE(outcome.result);
  EXPECT_EQ(outcome.failure, "a worker was lost, so its times say nothing");
  lost.recoveries = {{.joined = {3}}};
  ASSERT_TRUE(result_of(lost));
  EXPECT_EQ(result_of(lost)->times.compute, 5) << "of the two that were planned";
}

TEST(TrialResult, WhatIsUnfinishedOrDamagedIsNoResult) {
  const std::string good = report_to_json(trial_report());
  Report stopped = trial_report();
  stopped.stopped_by = "signal";
  EXPECT_FALSE(result_of(stopped));
  EXPECT_FALSE(outcome_of("", trial_history()).result);
  EXPECT_FALSE(outcome_of("[]", trial_history()).result);
  EXPECT_FALSE(outcome_of("{}", trial_history()).result);
  EXPECT_FALSE(outcome_of(R"({"stopped_by": 1, "workers": "many"})", trial_history()).result);
  EXPECT_FALSE(outcome_of(good, "").result);
  EXPECT_FALSE(outcome_of(good, "epoch,step\n1,2\n").result) << "there is no accuracy";
  for (size_t length = 0; length < trial_history().size(); ++length)
    outcome_of(good, trial_history().substr(0, length));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(
        outcome_of(good.substr(0, length - (length == good.size() - 1)), trial_history()).result);
  EXPECT_FALSE(read_trial("no such folder", {}).result);
}

}  // namespace
}  // namespace starling
