// Shards follow the speed of the workers, and the bits stay those of one process: real processes,
// of which one is slowed so much that no noise of the machine matters.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class WorkersBalance : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
    write_cnn_job();
  }

  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Of 4 steps an epoch, 3 are full ones.
  Words train(const std::string& job, const std::string& run, int epochs) const {
    const Words words = {"train", job + ".toml", "--run-dir", run, "--no-progress"};
    return with(with(words, job == "cnn" ? cnn_settings() : Words()),
                {"--set", fmt::format("training.epochs={}", epochs)});
  }
  // Through shm, over tcp, or "sharded" over it.
  Words balanced(const std::string& job, const std::string& run, int epochs, int workers,
                 const std::string& way) const {
    const bool sharded = way == "sharded";
    return with(train(job, run, epochs), {"--workers", fmt::format("{}", workers), "--lanes", "1",
                                          "--strategy", sharded ? "sharded" : "all_reduce", "--set",
                                          "strategy.fabric=" + (sharded ? "tcp" : way), "--set",
                                          "strategy.balance=speed", "--faults", "faults.toml"});
  }

  // Worker 1 is slow from the beginning on, but for the first step, which is long enough.
  void write_faults(const std::string& more = "", int factor = 600) const {
    write("faults.toml",
          fmt::format("[[fault]]\naction = \"slow\"\nworker = 1\nfactor = {}\nstep = 2\n{}", factor,
                      more));
  }
  static std::string kill(int worker, const std::string& point, int step) {
    return fmt::format("[[fault]]\naction = \"kill\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                       worker, point, step);
  }

  // Worker 1 has the fewest shards at the end, all have one, and together they have all.
  void expect_balanced(const std::string& run) const {
    const Json found = report(run);
    int sum = 0, of_slow = 0, least_of_others = 16;
    for (const Json& worker : found.at("worker_times")) {
      const int shards = worker.at("shards");
      EXPECT_GE(shards, 1);
      sum += shards;
      if (worker.at("worker") == 1)
        of_slow = shards;
      else
        least_of_others = std::min(least_of_others, shards);
    }
    EXPECT_EQ(sum, 16);
    EXPECT_LT(of_slow, least_of_others) << to_text(found.at("worker_times"));
    EXPECT_GE(found.at("rebalances"), 1);
    EXPECT_EQ(found.at("balance"), "speed");
    EXPECT_THAT(found.at("stragglers").get<std::vector<int>>(), Contains(1));
  }
};

class BalancedOver : public WorkersBalance, public testing::WithParamInterface<const char*> {};

TEST_P(BalancedOver, ASlowWorkerHasFewerShardsAndTheBitsAreThoseOfOne) {
  write_faults();
  for (const char* job : {"mlp", "cnn"}) {
    SCOPED_TRACE(job);
    const std::string run = std::string(job) + "_balanced", one = std::string(job) + "_one";
    done(train(job, one, 12));
    const Ended ended = done(balanced(job, run, 12, 4, GetParam()));
    EXPECT_EQ(hash(run), hash(one));
    EXPECT_EQ(read(run + "/ledger.jsonl"), read(one + "/ledger.jsonl"));
    expect_balanced(run);
    EXPECT_THAT(ended.output, HasSubstr("slow           worker 1 took "));
  }
}

TEST_P(BalancedOver, AStepOfSeveralBatchesIsBalancedToo) {
  write_faults();
  const Words more = {"--set", "training.accumulate=3"};
  done(with(train("mlp", "one", 24), more));
  done(with(balanced("mlp", "balanced", 24, 4, GetParam()), more));
  EXPECT_EQ(hash("balanced"), hash("one"));
  expect_balanced("balanced");
}

TEST_P(BalancedOver, AWorldThatDoesNotSurviveIsBalancedToo) {
  write_faults();
  done(train("mlp", "one", 12));
  done(with(balanced("mlp", "balanced", 12, 4, GetParam()), {"--set", "strategy.survive=false"}));
  EXPECT_EQ(hash("balanced"), hash("one"));
  expect_balanced("balanced");
}

// Also while shards are moved: that is the first strategy after step 5.
TEST_P(BalancedOver, LostWorkersAreMissedByNobody) {
  done(train("mlp", "one", 24));
  for (const char* point : {"strategy", "gradient", "announced", "updated"}) {
    for (const int worker : {0, 2}) {
      const std::string run = fmt::format("{}_{}", point, worker);
      SCOPED_TRACE(run);
      write_faults(kill(worker, point, std::string(point) == "strategy" ? 5 : 30));
      done(balanced("mlp", run, 24, 4, GetParam()));
      EXPECT_EQ(hash(run), hash("one"));
      EXPECT_EQ(read(run + "/ledger.jsonl"), read("one/ledger.jsonl"));
      EXPECT_EQ(report(run).at("recoveries").size(), 1u);
      expect_balanced(run);
      expect_nothing_left({});
    }
  }
}

// With many epochs, for it takes a while to start.
TEST_P(BalancedOver, NewcomersTakePartInIt) {
  write_faults(kill(0, "gradient", 20));
  done(train("mlp", "one", 200));
  done(with(balanced("mlp", "balanced", 200, 3, GetParam()), {"--respawn"}));
  EXPECT_EQ(hash("balanced"), hash("one"));
  EXPECT_EQ(read("balanced/ledger.jsonl"), read("one/ledger.jsonl"));
  EXPECT_EQ(report("balanced").at("workers"), 3);
  EXPECT_THAT(read("balanced/log.txt"), ContainsRegex("worker 3 joined; workers 1, 2, 3 go on"));
  expect_balanced("balanced");
}

INSTANTIATE_TEST_SUITE_P(All, BalancedOver, testing::Values("shm", "tcp", "sharded"),
                         [](const auto& tested) { return std::string(tested.param); });

// A step takes so long that there is a second in which it is looked for.
TEST_F(WorkersBalance, AStragglerIsNamedOnceAndWhatWouldHelp) {
  write_faults("", 20);
  Process process =
      start(with(balanced("mlp", "even", 1'000'000, 2, "shm"), {"--set", "strategy.balance=even"}));
  const std::string named = "note: worker 1 is slow: a shard takes it ";
  EXPECT_TRUE(process.wait_for_line(named)) << process.error();
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_EQ(count(process.error(), named), 1) << process.error();
  EXPECT_THAT(process.error(),
              HasSubstr("it has 8 of 16 shards (strategy.balance = \"speed\" gives"));
  EXPECT_THAT(process.error(), Not(HasSubstr("worker 0 is slow")));
  EXPECT_THAT(read("even/log.txt"), HasSubstr("worker 1 is slow"));
  EXPECT_EQ(report("even").at("rebalances"), 0);
}

}  // namespace
}  // namespace starling
