// Workers that make steps by themselves and agree now and then: `local_sgd`, `elastic_averaging`,
// `incremental`, `gossip`.
// How they survive, and that every sample is used once, is tried with the other ways of training
// apart (workers_apart_test.cc).
#include "train/safetensors.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class WorkersLocal : public WorkersTest {
 protected:
  static constexpr int kWorkers = 3, kSamplesLocal = 1000, kBatch = 40, kEpochs = 3;

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  static Words train(const std::string& run, const Words& more, int epochs = kEpochs) {
    Words words = {"train",
                   "mlp.toml",
                   "--no-progress",
                   "--lanes",
                   "1",
                   "--run-dir",
                   run,
                   "--set",
                   fmt::format("training.epochs={}", epochs),
                   "--set",
                   kQuickly,
                   "--set",
                   fmt::format("data.samples={}", kSamplesLocal),
                   "--set",
                   "data.test_samples=300"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Words local(const Words& more = {}) {
    Words words = {"--strategy", "local_sgd",        "--workers", fmt::format("{}", kWorkers),
                   "--set",      "strategy.period=4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // The largest difference of two weights, of the largest weight.
  double distance(const std::string& a, const std::string& b) const {
    const auto weights = [&](const std::string& run) {
      const std::string file = read(run + "/model.safetensors");
      return to_named_tensors(parse_safetensors(std::as_bytes(std::span(file)), run), run);
    };
    const std::vector<NamedTensor> first = weights(a), second = weights(b);
    double apart = 0, largest = 0;
    EXPECT_EQ(first.size(), second.size());
    for (size_t t = 0; t < first.size(); ++t) {
      EXPECT_EQ(first[t].name, second[t].name);
      for (size_t i = 0; i < first[t].values.size(); ++i) {
        const double one = first[t].values[i], other = second[t].values[i];
        apart = std::max(apart, std::abs(one - other));
        largest = std::max(largest, std::abs(one));
      }
    }
    return apart / largest;
  }
};

TEST_F(WorkersLocal, WithPeriod1ItIsAllReduce) {
  const Words plain = {"--set", "optimizer.name=sgd",
                       "--set", "optimizer.learning_rate=0.1",
                       "--set", "optimizer.clip_norm=1000000"};
  const auto with = [&](int period, const char* fabric) {
    return joined({"--strategy", "local_sgd", "--workers", "4", "--set", "strategy.partition=equal",
                   "--set", fmt::format("strategy.period={}", period), "--set",
                   fmt::format("strategy.fabric={}", fabric)},
                  plain);
  };
  done(train("together", joined({"--strategy", "all_reduce", "--workers", "4"}, plain)));
  for (const char* fabric : {"shm", "tcp"}) {
    done(train(fabric, with(1, fabric)));
    EXPECT_LT(distance("together", fabric), 1e-5) << fabric;
    EXPECT_EQ(report(fabric).at("steps"), kEpochs * kSamplesLocal / kBatch);
  }
  // Which is no matter of course:
  done(train("apart", with(5, "shm")));
  EXPECT_GT(distance("together", "apart"), 1e-4);
}

TEST_F(WorkersLocal, InEqualSharesARunHasTheSameBitsEachTime) {
  for (const char* state : {"kept", "averaged", "reset"}) {
    const Words more = local({"--set", "strategy.partition=equal", "--set",
                              fmt::format("strategy.local_state={}", state)});
    done(train("first", joined(more, {"--overwrite"})));
    done(train("second", joined(more, {"--overwrite", "--set", "strategy.fabric=tcp"})));
    EXPECT_EQ(hash("first"), hash("second")) << state;
    EXPECT_EQ(report("first").at("exact"), false);
  }
}

TEST_F(WorkersLocal, EverySettingMattersAndLearns) {
  std::set<std::string> hashes;
  for (const char* outer : {"average", "nesterov"}) {
    for (const char* state : {"kept", "averaged", "reset"}) {
      const std::string run = fmt::format("{}_{}", outer, state);
      done(train(run, local({"--set", "strategy.partition=equal", "--set",
                             fmt::format("strategy.outer={}", outer), "--set",
                             fmt::format("strategy.local_state={}", state)})));
      const Json found = report(run);
      EXPECT_GT(found.at("test_accuracy"), kLearnt) << run;
      EXPECT_EQ(found.at("strategy"), "local_sgd");
      EXPECT_EQ(found.at("outer"), outer);
      EXPECT_EQ(found.at("local_state"), state);
      EXPECT_EQ(found.at("period"), 4);
      EXPECT_GT(found.at("disagreement"), 0.0);
      EXPECT_LT(found.at("disagreement"), 1.0);
      hashes.insert(hash(run));
    }
  }
  EXPECT_EQ(hashes.size(), 6u);
}

TEST_F(WorkersLocal, ResumesToTheBitsOfARunThatNeverStopped) {
  const Words more =
      local({"--set", "strategy.partition=equal", "--set", "strategy.outer=nesterov"});
  done(train("whole", more));
  done(train("run", more, 1));
  done(train("run", joined(more, {"--resume"})));
  EXPECT_EQ(hash("run"), hash("whole"));
}

TEST_F(WorkersLocal, AStrongerPullKeepsWorkersTogether) {
  std::vector<double> disagreements;
  for (const char* beta : {"0.05", "0.9"}) {
    done(train(beta, {"--strategy", "elastic_averaging", "--workers", "3", "--set",
                      "strategy.period=2", "--set", fmt::format("strategy.beta={}", beta)}));
    const Json found = report(beta);
    EXPECT_EQ(found.at("strategy"), "elastic_averaging");
    EXPECT_EQ(found.at("period"), 2);
    EXPECT_EQ(found.at("beta"), std::stod(beta));
    EXPECT_FALSE(found.contains("outer"));
    disagreements.push_back(found.at("disagreement"));
  }
  EXPECT_GT(disagreements[0], 1.2 * disagreements[1]);
}

TEST_F(WorkersLocal, APeriodLongerThanTheEpochIsDividedBetweenAll) {
  done(
      train("run", {"--strategy", "local_sgd", "--workers", "4", "--set", "strategy.period=1000"}));
  const Json found = report("run");
  EXPECT_EQ(found.at("steps"), kEpochs);
  EXPECT_EQ(found.at("samples_unique"), kEpochs * kSamplesLocal);
  for (const Json& worker : found.at("worker_times")) EXPECT_GT(worker.at("shard_s"), 0) << worker;
}

TEST_F(WorkersLocal, SynchronousFirstIsAllReduceSoLong) {
  // With momentum: it goes over from one to the other.
  const auto after = [](int epochs) {
    return Words{"--strategy", "local_sgd",
                 "--workers",  "4",
                 "--set",      "strategy.partition=equal",
                 "--set",      "optimizer.name=momentum",
                 "--set",      "optimizer.learning_rate=0.02",
                 "--set",      "optimizer.clip_norm=1000000",
                 "--set",      fmt::format("strategy.post_local_after={}", epochs)};
  };
  done(train("together",
             {"--strategy", "all_reduce", "--workers", "4", "--set", "optimizer.name=momentum",
              "--set", "optimizer.learning_rate=0.02", "--set", "optimizer.clip_norm=1000000"}));
  done(train("first", after(kEpochs)));
  EXPECT_LT(distance("together", "first"), 1e-5);
  EXPECT_EQ(report("first").at("steps"), kEpochs * kSamplesLocal / kBatch);
  done(train("then", after(1)));
  EXPECT_LT(report("then").at("steps"), (1 + kEpochs) * kSamplesLocal / kBatch / 2);
  EXPECT_GT(distance("together", "then"), 1e-3);
  EXPECT_EQ(report("then").at("post_local_after"), 1);
  EXPECT_GT(report("then").at("disagreement"), 0.0);
  EXPECT_GT(report("then").at("test_accuracy"), kLearnt);
  // A resume in between goes on with all of it.
  done(train("whole", after(2)));
  done(train("run", after(2), 2));
  done(train("run", joined(after(2), {"--resume"})));
  EXPECT_EQ(hash("run"), hash("whole"));
}

TEST_F(WorkersLocal, TasksOfASlowWorkerAreDoneByOthers) {
  write("slow.toml", "[[fault]]\naction = \"slow\"\nworker = 2\nfactor = 30\n");
  done(train("run", {"--strategy", "incremental", "--workers", "3", "--set", "strategy.tasks=6",
                     "--set", "strategy.period=10", "--faults", "slow.toml"}));
  const Json found = report("run");
  EXPECT_EQ(found.at("tasks"), 6);
  EXPECT_GT(found.at("dropped_gradients"), 0) << "the slow worker is outdone";
  EXPECT_EQ(found.at("staleness").size(), 1u) << "a round has one version";
  EXPECT_EQ(found.at("samples_unique"), kEpochs * kSamplesLocal);
  EXPECT_EQ(found.at("steps"), kEpochs * 3) << "rounds of 400 samples";
  EXPECT_GT(found.at("test_accuracy"), 0.35) << "after 9 updates";
}

TEST_F(WorkersLocal, TasksHandedInAreNotDoneAgainWhenAWorkerIsLost) {
  // Worker 1 has handed in three tasks, whatever the cores do: the other is slow.
  write("faults.toml",
        "[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"gradient\"\nstep = 4\n"
        "[[fault]]\naction = \"slow\"\nworker = 0\nfactor = 50\n");
  done(train("run",
             {"--strategy", "incremental", "--workers", "2", "--set", "strategy.tasks=10", "--set",
              "strategy.period=25", "--faults", "faults.toml"},
             1));
  const Json found = report("run");
  EXPECT_EQ(found.at("recoveries").size(), 1u);
  EXPECT_EQ(found.at("samples_unique"), kSamplesLocal);
  EXPECT_EQ(found.at("steps"), 2) << "what was handed in before, and the rest";
}

TEST_F(WorkersLocal, GossipMeetsAfterEveryPeriod) {
  // Steps are long beside a meeting, whatever else the machine does: none is put off for another.
  write("slow.toml", "[[fault]]\naction = \"slow\"\nfactor = 50\n");
  std::vector<int> meetings;
  for (const char* period : {"1", "8"}) {
    done(train(period, {"--strategy", "gossip", "--workers", "3", "--set",
                        fmt::format("strategy.period={}", period), "--faults", "slow.toml"}));
    const Json found = report(period);
    EXPECT_EQ(found.at("strategy"), "gossip");
    EXPECT_EQ(found.at("match"), "random");
    EXPECT_TRUE(found.at("staleness").empty()) << "nobody's weights are older than its own";
    EXPECT_GT(found.at("bytes_sent"), 0);
    EXPECT_GT(found.at("test_accuracy"), kLearnt);
    EXPECT_GT(found.at("disagreement"), 0.0);
    EXPECT_LT(found.at("disagreement"), 0.5);
    meetings.push_back(found.at("meetings"));
  }
  EXPECT_GT(meetings[1], 0);
  EXPECT_GT(meetings[0], 2 * meetings[1]) << "after every period";
  done(train("ring", {"--strategy", "gossip", "--workers", "4", "--set", "strategy.match=ring",
                      "--set", "strategy.period=2", "--set", "strategy.fabric=tcp"}));
  EXPECT_EQ(report("ring").at("match"), "ring");
  EXPECT_GT(report("ring").at("meetings"), 0);
}

TEST_F(WorkersLocal, GossipAfterSynchronousEpochs) {
  done(train("run", {"--strategy", "gossip", "--workers", "3", "--set",
                     "strategy.post_local_after=2", "--set", "strategy.period=4"}));
  const Json found = report("run");
  EXPECT_GT(found.at("meetings"), 0);
  EXPECT_EQ(found.at("samples_unique"), kEpochs * kSamplesLocal);
  EXPECT_GT(found.at("test_accuracy"), kLearnt);
}

TEST_F(WorkersLocal, GoesOnFromOthersAndOthersFromIt) {
  const std::vector<Words> ways = {
      local({"--set", "strategy.outer=nesterov"}),
      {"--strategy", "all_reduce", "--workers", "2"},
      {"--strategy", "sharded", "--workers", "2", "--set", "strategy.fabric=tcp"},
      local({"--set", "strategy.fabric=tcp"}),
      {"--strategy", "parameter_server", "--workers", "3", "--set", "strategy.consistency=async"},
      {"--strategy", "elastic_averaging", "--workers", "3"},
      {"--strategy", "incremental", "--workers", "2", "--set", "strategy.tasks=5"},
      {"--strategy", "gossip", "--workers", "3"},
      local(),
      {}};
  int epochs = 0;
  for (const Words& way : ways) {
    ++epochs;
    done(train("run", epochs > 1 ? joined(way, {"--resume"}) : way, epochs));
    EXPECT_EQ(report("run").at("samples_unique"), epochs * kSamplesLocal);
  }
  EXPECT_GT(report("run").at("test_accuracy"), kLearnt);
  expect_nothing_left({});
}

// Nobody finishes what cannot be handed in any more: 25 steps of seconds each.
TEST_F(WorkersLocal, ALossEndsStepsThatWereLongToGo) {
  write("faults.toml",
        "[[fault]]\naction = \"slow\"\nfactor = 40000\nstep = 1\nsteps = 1\n"
        "[[fault]]\naction = \"kill\"\nworker = 1\nat = 1\n");
  done(train("run", local({"--set", "strategy.period=1000", "--faults", "faults.toml"})));
  EXPECT_EQ(lost_in("run"), 1u);
  EXPECT_LT(report("run").at("recoveries").at(0).at("resumption_s"), 30);
  expect_nothing_left({});
}

TEST_F(WorkersLocal, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(refused(2, train("run", local({"--set", "strategy.period=0"}))),
              HasSubstr("strategy.period"));
  EXPECT_THAT(refused(2, train("run", local({"--set", "strategy.outer=median"}))),
              AllOf(HasSubstr("average"), HasSubstr("nesterov")));
  EXPECT_THAT(refused(2, train("run", local({"--set", "strategy.local_state=lost"}))),
              AllOf(HasSubstr("kept"), HasSubstr("averaged"), HasSubstr("reset")));
  for (const char* beta : {"0", "1.5", "nan"}) {
    EXPECT_THAT(refused(2, train("run", {"--strategy", "elastic_averaging", "--workers", "2",
                                         "--set", fmt::format("strategy.beta={}", beta)})),
                HasSubstr("strategy.beta"));
  }
  EXPECT_THAT(refused(2, train("run", local({"--set", "training.accumulate=2"}))),
              HasSubstr("training.accumulate"));
  EXPECT_THAT(refused(2, train("tasks", {"--strategy", "incremental", "--workers", "2", "--set",
                                         "strategy.partition=equal"})),
              HasSubstr("strategy.partition"));
  EXPECT_THAT(refused(2, train("many", {"--strategy", "incremental", "--workers", "2", "--set",
                                        "strategy.tasks=1000000"})),
              AllOf(HasSubstr("strategy.tasks"), HasSubstr("samples")));
  EXPECT_THAT(refused(2, train("long", {"--strategy", "elastic_averaging", "--workers", "2",
                                        "--set", "strategy.period=1000"})),
              HasSubstr("too long for a run of"));
  EXPECT_THAT(
      refused(2, train("run", {"--strategy", "gossip", "--workers", "2", "--servers", "1"})),
      HasSubstr("has no servers"));
  EXPECT_THAT(refused(2, train("run", {"--strategy", "gossip", "--workers", "2", "--set",
                                       "strategy.match=all"})),
              AllOf(HasSubstr("random"), HasSubstr("ring")));
  EXPECT_THAT(refused(2, train("run", local({"--record"}))), HasSubstr("local_sgd"));
}

}  // namespace
}  // namespace starling
