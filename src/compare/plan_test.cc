#include "compare/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/atomic_file_testing.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PlanTest : public testing::Test {
 protected:
  // Options for a small job, with more of it.
  CompareOptions options(const std::string& more = "") const {
    const std::filesystem::path file = folder_.path() / "job.toml";
    std::ofstream(file) << R"(
name = "small"
seed = 5
[data]
source = "synthetic"
samples = 100
test_samples = 20
features = [4]
classes = 3
[[model.layers]]
type = "dense"
units = 3
[training]
epochs = 3
)" << more;
    CompareOptions result;
    result.job_file = file;
    result.strategies = "single,all_reduce,local_sgd";
    result.seeds = 2;
    return result;
  }
  static std::string value_of(const std::vector<Setting>& settings, const std::string& key) {
    std::string value = "–";
    for (const Setting& setting : settings) {
      if (setting.key == key) value = setting.value;
    }
    return value;
  }

  TemporaryFolder folder_;
};

TEST_F(PlanTest, FirstAllOfOneSeedThenOfTheNext) {
  CompareOptions wanted = options();
  wanted.conditions.workers = "2,4";
  const ComparePlan plan = make_compare_plan(wanted);
  std::vector<std::string> folders;
  for (const Trial& trial : plan.trials) folders.push_back(plan.trial_folder(trial));
  EXPECT_THAT(folders,
              ElementsAre("runs/single/seed-5", "runs/workers-2/all_reduce/seed-5",
                          "runs/workers-2/local_sgd/seed-5", "runs/workers-4/all_reduce/seed-5",
                          "runs/workers-4/local_sgd/seed-5", "runs/single/seed-6",
                          "runs/workers-2/all_reduce/seed-6", "runs/workers-2/local_sgd/seed-6",
                          "runs/workers-4/all_reduce/seed-6", "runs/workers-4/local_sgd/seed-6"));
}

TEST_F(PlanTest, TrialsDifferInTheirSettings) {
  const ComparePlan plan = make_compare_plan(options());
  const std::vector<Setting> single = plan.trial_settings(plan.trials[0]);
  EXPECT_EQ(value_of(single, "strategy.name"), "single");
  EXPECT_EQ(value_of(single, "workers"), "1");
  EXPECT_EQ(value_of(single, "lanes"), "0") << "all cores";
  EXPECT_EQ(value_of(single, "seed"), "5");
  const std::vector<Setting> other = plan.trial_settings(plan.trials.back());
  EXPECT_EQ(value_of(other, "strategy.name"), "local_sgd");
  EXPECT_EQ(value_of(other, "workers"), "2");
  EXPECT_EQ(value_of(other, "seed"), "6");
}

TEST_F(PlanTest, WorkersAreTheJobsUnlessTheyAreGiven) {
  EXPECT_EQ(make_compare_plan(options()).conditions.front().workers, 2u);
  CompareOptions of_job = options();
  of_job.settings = {{"workers", "3"}};
  EXPECT_EQ(make_compare_plan(of_job).conditions.front().workers, 3u);
}

TEST_F(PlanTest, TheDataIsCounted) {
  EXPECT_EQ(make_compare_plan(options()).data,
            "100 samples to train on, 20 to validate, 20 to test");
  CompareOptions split = options();
  split.settings = {{"data.validation_split", "0.3"}};
  EXPECT_EQ(make_compare_plan(split).data, "70 samples to train on, 30 to validate, 20 to test");
}

TEST_F(PlanTest, BudgetsAreEqual) {
  EXPECT_EQ(make_compare_plan(options()).job.training.epochs, 3u);
  CompareOptions wanted = options("[training.early_stopping]\n[training.save_best]\n");
  wanted.epochs = 7;
  const ComparePlan seven = make_compare_plan(wanted);
  EXPECT_EQ(seven.job.training.epochs, 7u);
  EXPECT_FALSE(seven.job.training.early_stopping);
  EXPECT_FALSE(seven.job.training.save_best);
  EXPECT_FALSE(seven.job.checkpoint.enabled);
  EXPECT_THAT(seven.notes, ElementsAre(HasSubstr("early stopping is off")));
  wanted = options();
  wanted.samples = 250;
  const ComparePlan samples = make_compare_plan(wanted);
  EXPECT_EQ(samples.job.training.epochs, 3u);
  EXPECT_THAT(samples.notes, ElementsAre(HasSubstr("3 epochs, 300 samples")));
}

TEST_F(PlanTest, ATimeIsForAsManyEpochsAsItTakes) {
  CompareOptions wanted = options();
  wanted.seconds = 30;
  const ComparePlan open = make_compare_plan(wanted);
  EXPECT_EQ(open.job.training.time_limit, 30);
  EXPECT_EQ(open.job.training.epochs, 1'000'000u);
  wanted.epochs = 4;
  EXPECT_EQ(make_compare_plan(wanted).job.training.epochs, 4u);
  // A schedule that ends needs to know when.
  wanted = options("[optimizer.schedule]\nname = \"cosine\"\n");
  wanted.seconds = 30;
  const ComparePlan cosine = make_compare_plan(wanted);
  EXPECT_EQ(cosine.job.training.epochs, 3u);
  EXPECT_THAT(cosine.notes, ElementsAre(HasSubstr("schedule")));
}

TEST_F(PlanTest, WhatDoesNotFitIsLeftOutAndTold) {
  CompareOptions wanted = options();
  wanted.strategies = "all";
  wanted.epochs = 10;  // or one of them had no time to learn
  const ComparePlan shm = make_compare_plan(wanted);
  EXPECT_THAT(shm.notes, ElementsAre(HasSubstr("sharded is left out")));
  wanted.settings = {{"strategy.fabric", "tcp"}};
  const ComparePlan tcp = make_compare_plan(wanted);
  EXPECT_THAT(tcp.notes, ElementsAre());
  EXPECT_EQ(tcp.entries.size(), shm.entries.size() + 1);
  wanted.settings = {};
  wanted.strategies = "sharded,single";
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("strategy.fabric=tcp"));
}

// What a trial would refuse: that would end the comparison.
TEST_F(PlanTest, WhatATrialWouldRefuseIsLeftOut) {
  struct Case {
    Setting setting;
    const char *strategies, *note;
  };
  for (const Case& one :
       {Case{{"training.accumulate", "2"},
             "all_reduce,parameter_server:sync/async,gossip",
             "parameter_server async, gossip are left out: workers that train apart can't acc"},
        {{"strategy.survive", "false"},
         "all_reduce,sharded:fabric=tcp,local_sgd",
         "local_sgd is left out: workers that train apart need strategy.survive"},
        {{"strategy.partition", "equal"},
         "all_reduce,local_sgd,incremental",
         "incremental is left out: who is ready takes the next task"},
        {{"strategy.partition", "dynamic"},
         "single,all_reduce:async/sync",
         "all_reduce async is left out: strategy.consistency = \"async\" is for parameter_serv"},
        {{"strategy.fabric", "tcp"},
         "single,all_reduce,all_reduce:shm:link_delay=1ms",
         "all_reduce shm link_delay=1ms is left out: only workers that talk over tcp have links"},
        {{"strategy.backup", "2"},
         "all_reduce,local_sgd,parameter_server:backup",
         "parameter_server backup is left out: strategy.backup = 2"},
        {{"strategy.tasks", "1000000"},
         "all_reduce,local_sgd,incremental",
         "incremental is left out: a round has no more than"},
        {{"strategy.period", "100000"},
         "all_reduce,local_sgd,elastic_averaging",
         "elastic_averaging is left out: strategy.period = 100000 is too long"}}) {
    CompareOptions wanted = options();
    wanted.settings = {one.setting};
    wanted.strategies = one.strategies;
    const ComparePlan plan = make_compare_plan(wanted);
    EXPECT_THAT(plan.notes, ElementsAre(HasSubstr(one.note))) << one.setting.key;
    EXPECT_EQ(plan.entries.size(), 2u) << one.setting.key;
  }
}

// Its trials would all be refused: they write no checkpoints.
TEST_F(PlanTest, NoTrialRollsBack) {
  CompareOptions wanted = options();
  wanted.settings = {{"non_finite", "roll_back"}};
  const ComparePlan plan = make_compare_plan(wanted);
  EXPECT_EQ(plan.job.non_finite, "skip");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("non_finite is \"skip\"")));
  wanted.settings = {{"non_finite", "stop"}};
  EXPECT_EQ(make_compare_plan(wanted).job.non_finite, "stop");
}

TEST_F(PlanTest, NumbersOfWorkersThatCannotBeRunAreLeftOut) {
  CompareOptions wanted = options("[strategy]\nmin_workers = 4\n");
  wanted.strategies = "single,all_reduce,parameter_server";
  wanted.conditions.workers = "2,4,8,16";
  const ComparePlan plan = make_compare_plan(wanted);
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("nothing is run with 2 workers: strategy.min_wo"),
                                      HasSubstr("nothing is run with 16 workers: a batch has 8")));
  ASSERT_EQ(plan.conditions.size(), 2u);
  EXPECT_EQ(plan.conditions[1].workers, 8u);
  EXPECT_EQ(plan.entries.size(), 5u);
  EXPECT_EQ(plan.entries.back().condition, 1u);
  EXPECT_EQ(value_of(plan.entries[0].settings, "strategy.min_workers"), "1") << "single is one";
  wanted.settings = {{"shards", "2"}};
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("--set shards=16"));
}

TEST_F(PlanTest, OnlyWorkersThatShareBatchesNeedShards) {
  CompareOptions wanted = options();
  wanted.strategies = "all_reduce,parameter_server:async,local_sgd";
  wanted.conditions.workers = "8,16";
  const ComparePlan plan = make_compare_plan(wanted);
  EXPECT_THAT(plan.notes,
              ElementsAre(HasSubstr("16 workers; all_reduce is left out: a batch has 8 shards")));
  EXPECT_EQ(plan.conditions.size(), 2u);
  EXPECT_EQ(plan.entries.size(), 5u);
}

TEST_F(PlanTest, LinksOfTheJobAreConditionsToo) {
  const std::string links = "[strategy]\nfabric = \"tcp\"\nlink_rate = \"1gbit\"\n";
  CompareOptions wanted = options(links + "link_delay = \"2ms\"\n");
  const ComparePlan own = make_compare_plan(wanted);
  EXPECT_EQ(own.conditions.front().label(), "2 workers, links of 1gbit with a delay of 2ms");
  EXPECT_EQ(own.job.strategy.link_rate, "") << "single has no links";
  EXPECT_EQ(own.job.strategy.link_delay, "");
  EXPECT_EQ(value_of(own.entries[0].settings, "strategy.link_rate"), "–");
  EXPECT_EQ(value_of(own.entries[1].settings, "strategy.link_rate"), "\"1gbit\"");
  wanted.conditions.link_rate = "none,10mbit";
  wanted.conditions.link_delay = "none";
  const ComparePlan given = make_compare_plan(wanted);
  ASSERT_EQ(given.conditions.size(), 2u);
  EXPECT_TRUE(given.conditions[0].is_plain());
  EXPECT_EQ(given.conditions[1].label(), "2 workers, links of 10mbit");
}

TEST_F(PlanTest, ATimeLimitOfTheJobIsABudgetOrOff) {
  CompareOptions wanted = options("time_limit = 20\n");
  const ComparePlan own = make_compare_plan(wanted);
  EXPECT_EQ(own.job.training.time_limit, 20);
  EXPECT_EQ(own.job.training.epochs, 3u);
  EXPECT_EQ(own.budget, "20 s of training, at most 3 epochs of 100 samples");
  EXPECT_THAT(own.notes, ElementsAre());
  wanted.epochs = 5;
  const ComparePlan epochs = make_compare_plan(wanted);
  EXPECT_EQ(epochs.job.training.time_limit, 0);
  EXPECT_EQ(epochs.budget, "5 epochs of 100 samples");
  EXPECT_THAT(epochs.notes, ElementsAre(HasSubstr("limit of time is off")));
  wanted.seconds = 7;
  EXPECT_EQ(make_compare_plan(wanted).job.training.time_limit, 7);
}

TEST_F(PlanTest, SettingsOfTheJobsOwnStrategyAreNotForOthers) {
  CompareOptions wanted =
      options("[strategy]\nname = \"parameter_server\"\nconsistency = \"async\"\nservers = 1\n");
  wanted.strategies = "all_reduce,parameter_server:ssp,gossip";
  const ComparePlan plan = make_compare_plan(wanted);
  EXPECT_EQ(value_of(plan.entries[0].settings, "strategy.consistency"), "sync");
  EXPECT_EQ(value_of(plan.entries[0].settings, "strategy.servers"), "0");
  EXPECT_EQ(value_of(plan.entries[1].settings, "strategy.consistency"), "ssp");
  EXPECT_EQ(value_of(plan.entries[1].settings, "strategy.servers"), "–") << "as the job has them";
  EXPECT_EQ(value_of(plan.entries[2].settings, "strategy.servers"), "0") << "gossip has none";
}

TEST_F(PlanTest, WhatCannotBeComparedIsRefused) {
  CompareOptions wanted = options();
  wanted.strategies = "all_reduce";
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("nothing to compare"));
  wanted = options();
  wanted.strategies = "single,local_sgd:period=x";
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("strategy.period"));
  wanted = options();
  wanted.settings = {{"data.source", "synthetic-regression"},
                     {"training.loss", "mean_squared_error"}};
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("accuracy"));
  wanted = options();
  wanted.samples = 1'000'000'000;
  EXPECT_THAT(refusal([&] { make_compare_plan(wanted); }), HasSubstr("epochs"));
}

}  // namespace
}  // namespace starling
