// A run goes on when workers are killed or frozen, and ends with the bits of one that nothing
// happened to: real processes and signals, at every named point of the protocol and at random.
#include <random>

#include "cluster/faults.h"
#include "seeds.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Words = std::vector<std::string>;

constexpr int kFewEpochs = 6, kManyEpochs = 100;
constexpr uint64_t kMidway = 9;  // of 4 steps an epoch, or more

struct FaultLine {
  std::string action;
  int worker;
  std::string point;
  uint64_t step;
};

// The ways of training: through shm, over tcp, and over tcp with the optimizer state split.
const Words kWays = {"shm", "tcp", "sharded"};

class WorkersSurvive : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
    write_cnn_job();
    write_wide_job();
  }

  Words train(const std::string& job, const std::string& run, int workers,
              const std::string& fabric) const {
    Words words = {"train", job + ".toml", "--run-dir", run, "--no-progress"};
    // Of several blocks, so that every worker has some.
    if (job == "mlp") words.insert(words.end(), {"--set", "model.layers.0.units=1000"});
    if (job == "cnn") {
      for (const std::string& word : cnn_settings()) words.push_back(word);
    }
    words.insert(words.end(), {"--set", fmt::format("training.epochs={}", kFewEpochs)});
    words.insert(words.end(), {"--set", "checkpoint.every_steps=3"});
    if (workers == 1) return words;
    words.insert(words.end(), {"--workers", fmt::format("{}", workers), "--lanes", "1"});
    if (fabric == "sharded") words.insert(words.end(), {"--strategy", fabric});
    words.insert(words.end(),
                 {"--set", fabric == "shm" ? "strategy.fabric=shm" : "strategy.fabric=tcp"});
    return words;
  }

  void write_faults(const std::vector<FaultLine>& faults) const {
    std::string text;
    for (const FaultLine& fault : faults) {
      text += fmt::format("[[fault]]\naction = \"{}\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                          fault.action, fault.worker, fault.point, fault.step);
    }
    write("faults.toml", text);
  }

  // What a run that nothing happens to gives.
  const Json& undisturbed(const std::string& job) {
    if (!whole_.contains(job)) {
      done(train(job, job + "_whole", 1, ""));
      whole_[job] = report(job + "_whole");
    }
    return whole_[job];
  }

  // Every sample once in every epoch, and the same figures.
  void expect_undisturbed(const std::string& job, const std::string& run,
                          const std::map<int, Watched>& workers = {}) {
    const Json whole = undisturbed(job), found = report(run);
    for (const char* key : {"weights_sha256", "train_loss", "test_loss", "test_accuracy", "steps",
                            "samples", "samples_unique", "samples_duplicated", "samples_missing"}) {
      EXPECT_EQ(to_text(found.at(key)), to_text(whole.at(key))) << key;
    }
    EXPECT_EQ(read(run + "/ledger.jsonl"), read(job + "_whole/ledger.jsonl"));
    EXPECT_EQ(count(read(run + "/history.csv"), "\n"), kFewEpochs + 1);
    for (const char* file : {"/model.safetensors", "/best.safetensors"})
      EXPECT_EQ(read(run + file), read(job + "_whole" + file)) << file;
    expect_nothing_left(workers);
  }

  // With 3 workers; returns the recoveries of the report.
  Json survive(const std::string& job, const std::string& fabric, const FaultLine& fault,
               const std::string& setting = "strategy.survive=true") {
    const std::string run =
        fmt::format("{}_{}_{}_{}_{}", job, fabric, fault.action, fault.point, fault.worker);
    SCOPED_TRACE(run);
    write_faults({fault});
    Words words = train(job, run, 3, fabric);
    words.insert(words.end(), {"--faults", "faults.toml", "--set", setting});
    const Ended ended = done(words);
    EXPECT_THAT(ended.error, Not(HasSubstr("error:")));
    EXPECT_THAT(ended.output, HasSubstr("results")) << "who takes over writes where the chief did";
    expect_undisturbed(job, run);
    return report(run).at("recoveries");
  }

  std::map<std::string, Json> whole_;
};

class WorkerKilledAt
    : public WorkersSurvive,
      public testing::WithParamInterface<std::tuple<const char*, const char*, int>> {};

TEST_P(WorkerKilledAt, EachPointOfTheProtocolIsMissedByNobody) {
  const auto [job, fabric, worker] = GetParam();
  for (size_t i = 0; i < static_cast<size_t>(FaultPoint::kCount); ++i) {
    const auto point = static_cast<FaultPoint>(i);
    // Each has its copy of the state over tcp, and needs no help with its blocks.
    const bool in_block = point == FaultPoint::kBlock || point == FaultPoint::kBlockWritten;
    if (in_block && std::string(fabric) != "shm") continue;
    const bool of_slices = point == FaultPoint::kSliced || point == FaultPoint::kSpread;
    if (of_slices && std::string(fabric) != "sharded") continue;
    if (point == FaultPoint::kCheckpoint && worker > 0) continue;              // the chief's
    if (point == FaultPoint::kTaken || point == FaultPoint::kGiven) continue;  // where one joins
    if (point == FaultPoint::kWeights) continue;  // where they are the best
    if (point == FaultPoint::kRecord || point >= FaultPoint::kPushed)
      continue;  // of workers that train apart
    const bool early = point == FaultPoint::kStart || point == FaultPoint::kStrategy ||
                       point == FaultPoint::kSliced;
    const Json recoveries =
        survive(job, fabric, {"kill", worker, std::string(name_of(point)), early ? 0 : kMidway});
    if (point == FaultPoint::kStart) continue;  // before the others would have told of it
    ASSERT_EQ(recoveries.size(), 1u) << name_of(point);
    EXPECT_EQ(to_text(recoveries[0].at("lost")), fmt::format("[{}]", worker));
    EXPECT_THAT(recoveries[0].at("how").get<std::string>(), HasSubstr("ended by signal 9"));
    EXPECT_THAT(recoveries[0].at("noticed_in").get<std::string>(), Not(IsEmpty()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkerKilledAt,
                         testing::Combine(testing::Values("mlp", "cnn"),
                                          testing::Values("shm", "tcp", "sharded"),
                                          testing::Values(0, 1)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}_worker{}", std::get<0>(tested.param),
                                              std::get<1>(tested.param), std::get<2>(tested.param));
                         });

// Of the last epoch, which nothing follows that could be better.
TEST_F(WorkersSurvive, TheChiefIsLostWithTheBestWeights) {
  const Words best = {"--set", "training.save_best.value=train_loss"};
  done(joined(train("mlp", "alone", 1, ""), best));
  write_faults({{"kill", 0, "weights", 4 * kFewEpochs}});
  for (const std::string& fabric : kWays) {
    Words words = joined(train("mlp", fabric, 3, fabric), best);
    words.insert(words.end(), {"--faults", "faults.toml"});
    done(words);
    EXPECT_EQ(lost_in(fabric), 1u) << fabric;
    EXPECT_EQ(read(fabric + "/best.safetensors"), read("alone/best.safetensors")) << fabric;
    EXPECT_EQ(read("alone/best.safetensors"), read("alone/model.safetensors"));
  }
}

// Who completes the step of a lost worker computes what is late of its gradient, too.
INSTANTIATE_TEST_SUITE_P(Late, WorkerKilledAt,
                         testing::Combine(testing::Values("wide"), testing::Values("shm"),
                                          testing::Values(0, 1)),
                         [](const auto& tested) {
                           return fmt::format("worker{}", std::get<2>(tested.param));
                         });

// Worker 3 replaces worker 2. Worker 0 gives it the state, and is lost before the newcomer has all
// that it was told of; or the newcomer is lost with it. Through shm it is a race whether it has: so
// more than once.
TEST_F(WorkersSurvive, WhoGivesOrTakesTheStateOfANewcomerMayBeLost) {
  for (const std::string fabric : {"shm", "tcp", "sharded", "shm", "shm"}) {
    for (const FaultLine& second : {FaultLine{"kill", 0, "given", 0}, {"kill", 3, "taken", 0}}) {
      const std::string run = fmt::format("{}_{}", fabric, second.point);
      SCOPED_TRACE(run);
      std::filesystem::remove_all(folder_ / run);
      write_faults({{"kill", 2, "gradient", kMidway}, second});
      done(joined(train("mlp", run, 3, fabric), {"--faults", "faults.toml", "--respawn"}));
      expect_undisturbed("mlp", run);
      const Json faults = report(run).at("faults");
      for (const Json& fault : faults) EXPECT_EQ(fault.at("lost"), fault.at("worker"));
    }
  }
}

TEST_F(WorkersSurvive, AFrozenWorkerIsKilledAndMissedByNobody) {
  for (const std::string& fabric : kWays) {
    for (const char* point : {"gradient", "updated"}) {
      const Json recoveries =
          survive("mlp", fabric, {"freeze", 1, point, kMidway}, "strategy.heartbeat_limit=1");
      ASSERT_EQ(recoveries.size(), 1u);
      EXPECT_THAT(recoveries[0].at("how").get<std::string>(), HasSubstr("it was frozen"));
    }
  }
}

TEST_F(WorkersSurvive, AStuckWorkerIsKilledAndMissedByNobody) {
  for (const char* fabric : {"shm", "tcp"}) {
    const Json recoveries =
        survive("mlp", fabric, {"hang", 1, "gradient", kMidway}, "strategy.progress_limit=2");
    ASSERT_EQ(recoveries.size(), 1u);
    EXPECT_THAT(recoveries[0].at("how").get<std::string>(),
                HasSubstr("worker 1 was lost: it did not get on"));
  }
}

// The others have not yet begun to tell of losses, but go on without it.
TEST_F(WorkersSurvive, WhoFreezesOrIsStuckAtTheStartIsMissedByNobody) {
  for (const std::string& fabric : kWays) {
    for (const int worker : {0, 1}) {
      for (const auto& [action, limit] : {std::pair{"freeze", "strategy.heartbeat_limit=1"},
                                          {"hang", "strategy.progress_limit=2"}}) {
        survive("mlp", fabric, {action, worker, "start", 0}, limit);
        const std::string run = fmt::format("mlp_{}_{}_start_{}", fabric, action, worker);
        EXPECT_LT(report(run).at("workers"), 3) << run;
      }
    }
  }
}

// A part of a file, which it can't remove any more.
TEST_F(WorkersSurvive, WhatALostChiefWasWritingIsRemoved) {
  write_faults({{"freeze", 0, "gradient", kMidway}});
  Words words = train("mlp", "run", 3, "shm");
  words.insert(words.end(), {"--faults", "faults.toml", "--set", "strategy.heartbeat_limit=600"});
  Process process = start(words);
  const auto workers = wait_for_workers(process, 3);
  ASSERT_TRUE(workers.at(0).frozen_within(kSoon));
  write("run/.tmp-history.csv-1-0", "epoch,tr");
  workers.at(0).signal(SIGKILL);
  EXPECT_EQ(process.wait(), 0) << process.error();
  EXPECT_EQ(lost_in("run"), 1u);
  expect_undisturbed("mlp", "run", workers);
}

// For less than the limit, which is so large that it plays no part: nobody is lost.
class WhoIsFrozen : public WorkersSurvive, public testing::WithParamInterface<std::string> {
 protected:
  // Starts a run of which worker `frozen` freezes midway, lets `meanwhile` do something then, and
  // lets the worker go on.
  void expect_goes_on(const std::string& run, int frozen, const char* point,
                      const std::function<void(Process&)>& meanwhile,
                      const std::function<void(Process&)>& afterwards) {
    SCOPED_TRACE(run);
    write_faults({{"freeze", frozen, point, kMidway}});
    Words words = train("mlp", run, 3, GetParam());
    words.insert(words.end(), {"--faults", "faults.toml", "--set", "strategy.heartbeat_limit=600",
                               "--set", "strategy.progress_limit=600"});
    Process process = start(words);
    const auto workers = wait_for_workers(process, 3);
    ASSERT_EQ(workers.size(), 3u);
    ASSERT_TRUE(workers.at(frozen).frozen_within(kSoon));
    meanwhile(process);
    workers.at(frozen).signal(SIGCONT);
    afterwards(process);
    EXPECT_EQ(process.wait(), 0) << process.error();
    EXPECT_THAT(process.error(), Not(HasSubstr("lost")));
    EXPECT_EQ(to_text(report(run).at("recoveries")), "[]");
    expect_undisturbed("mlp", run, workers);
  }

  // How many epochs the ledger tells of.
  int epochs_of(const std::string& run) const {
    return exists(run + "/ledger.jsonl") ? count(read(run + "/ledger.jsonl"), "\n") : 0;
  }
};

TEST_P(WhoIsFrozen, AsTheChiefOrAnotherWorkerGoesOn) {
  for (const int worker : {0, 1}) {
    for (const char* point : {"gradient", "updated", "checkpoint"}) {
      if (point == std::string("checkpoint") && worker > 0) continue;  // the chief's
      const std::string run = fmt::format("{}{}", point, worker);
      int before = 0;
      const auto nobody_gets_on = [&](Process&) {
        before = epochs_of(run);
        EXPECT_LT(before, kFewEpochs);
      };
      expect_goes_on(run, worker, point, nobody_gets_on, [](Process&) {});
      EXPECT_GT(epochs_of(run), before);
    }
  }
}

// Workers train on without it, and it finds them well. One of them waits until it is frozen.
TEST_P(WhoIsFrozen, AsTheLauncherGoesOn) {
  const std::string run = "launcher";
  const auto freeze = [&](Process& launcher) {
    launcher.signal(SIGSTOP);
    EXPECT_TRUE(Watched(launcher.id()).frozen_within(kSoon));
    EXPECT_LT(epochs_of(run), kFewEpochs);
  };
  const auto go_on = [&](Process& launcher) {
    const auto end = Process::Clock::now() + kSoon;
    while (epochs_of(run) < kFewEpochs && Process::Clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(epochs_of(run), kFewEpochs) << "they did not train without it";
    launcher.signal(SIGCONT);
  };
  expect_goes_on(run, 1, "gradient", freeze, go_on);
}

// Nobody has heard of the others for longer than the limit, and nobody is to blame.
TEST_P(WhoIsFrozen, AsAWholeJobGoesOn) {
  const Words epochs = {"--set", fmt::format("training.epochs={}", kManyEpochs)};
  Words words = train("mlp", "alone", 1, "");
  words.insert(words.end(), epochs.begin(), epochs.end());
  done(words);
  words = train("mlp", "paused", 3, GetParam());
  words.insert(words.end(), epochs.begin(), epochs.end());
  words.insert(words.end(), {"--set", "strategy.heartbeat_limit=1"});
  Process process = start(words);
  const auto workers = wait_for_workers(process, 3);
  // After an epoch all were heard of.
  for (const auto end = Process::Clock::now() + kSoon; !exists("paused/ledger.jsonl");)
    ASSERT_LT(Process::Clock::now(), end);
  process.signal(SIGSTOP);
  for (const auto& [rank, worker] : workers) worker.signal(SIGSTOP);
  EXPECT_FALSE(workers.at(0).ended_within(std::chrono::milliseconds(1500)));
  process.signal(SIGCONT);
  for (const auto& [rank, worker] : workers) worker.signal(SIGCONT);
  EXPECT_EQ(process.wait(), 0) << process.error();
  EXPECT_EQ(to_text(report("paused").at("recoveries")), "[]");
  EXPECT_EQ(hash("paused"), hash("alone"));
  EXPECT_EQ(read("paused/ledger.jsonl"), read("alone/ledger.jsonl"));
  expect_nothing_left(workers);
}

INSTANTIATE_TEST_SUITE_P(Survive, WhoIsFrozen, testing::ValuesIn(kWays),
                         [](const auto& tested) { return tested.param; });

TEST_F(WorkersSurvive, EverySurvivorsLogNamesWhoAndWhere) {
  survive("mlp", "shm", {"kill", 2, "gradient", kMidway});
  const std::string log = read("mlp_shm_kill_gradient_2/log.txt");
  for (const int survivor : {0, 1}) {
    EXPECT_THAT(log, ContainsRegex(fmt::format("worker {}: worker 2 was lost: it was ended by "
                                               "signal 9 [^\n]*noticed in: all_reduce step {}, "
                                               "worker {}: [^\n]* bytes",
                                               survivor, kMidway, survivor)));
  }
}

// One after another, and one while the others still recover from the loss of the one before.
TEST_F(WorkersSurvive, AllButOneMayBeLost) {
  for (const std::string& fabric : kWays) {
    SCOPED_TRACE(fabric);
    write_faults(
        {{"kill", 0, "announced", 4}, {"kill", 2, "strategy", 4}, {"kill", 3, "updated", kMidway}});
    Words words = train("mlp", fabric, 4, fabric);
    words.insert(words.end(), {"--faults", "faults.toml"});
    done(words);
    expect_undisturbed("mlp", fabric);
  }
}

TEST_F(WorkersSurvive, TwoLostAtTheSameTime) {
  for (const char* fabric : {"shm", "tcp"}) {
    for (const char* point : {"gradient", "announced", "update", "updated", "evaluation"}) {
      const std::string run = fmt::format("{}_{}", fabric, point);
      SCOPED_TRACE(run);
      write_faults({{"kill", 0, point, kMidway}, {"kill", 1, point, kMidway}});
      Words words = train("mlp", run, 4, fabric);
      words.insert(words.end(), {"--faults", "faults.toml"});
      done(words);
      expect_undisturbed("mlp", run);
    }
  }
}

// At any moment, from the first instruction of a worker on: whatever it is doing.
TEST_F(WorkersSurvive, KillsAtRandom) {
  size_t lost = 0;
  for (uint64_t round = 0; round < seed_count(10); ++round) {
    std::mt19937_64 random(round);
    const std::string fabric = kWays[round % kWays.size()], run = fmt::format("run{}", round);
    const std::string job = round / kWays.size() % 2 == 0 ? "cnn" : "wide";
    const auto moment = std::chrono::milliseconds(random() % 400);
    const int victim = static_cast<int>(random() % 3);
    SCOPED_TRACE(fmt::format("{} worker {} after {} ms", run, victim, moment.count()));
    Process process = start(train(job, run, 3, fabric));
    const auto workers = wait_for_workers(process, 3);
    if (!workers.at(victim).ended_within(moment)) workers.at(victim).signal(SIGKILL);
    EXPECT_EQ(process.wait(), 0) << process.error();
    expect_undisturbed(job, run, workers);
    lost += lost_in(run);
  }
  EXPECT_GT(lost, 0u);
}

// A new worker gets the state from the others, and takes shards from the next step on; also when
// that is the first of an epoch. With many epochs, for it takes a while to start.
TEST_F(WorkersSurvive, ALostWorkerIsReplaced) {
  for (const int batch : {40, kSamples}) {
    const Words settings = {"--set", fmt::format("training.epochs={}", kManyEpochs), "--set",
                            fmt::format("training.batch={}", batch)};
    const std::string alone = fmt::format("alone{}", batch);
    Words words = train("mlp", alone, 1, "");
    words.insert(words.end(), settings.begin(), settings.end());
    done(words);
    for (const std::string& fabric : kWays) {
      const std::string run = fmt::format("{}{}", fabric, batch);
      SCOPED_TRACE(run);
      write_faults({{"kill", batch == 40 ? 0 : 1, "gradient", kMidway}});
      words = train("mlp", run, 3, fabric);
      words.insert(words.end(), settings.begin(), settings.end());
      words.insert(words.end(), {"--respawn", "--faults", "faults.toml"});
      done(words);
      EXPECT_EQ(hash(run), hash(alone));
      EXPECT_EQ(read(run + "/ledger.jsonl"), read(alone + "/ledger.jsonl"));
      EXPECT_EQ(report(run).at("workers"), 3);
      EXPECT_THAT(read(run + "/log.txt"),
                  ContainsRegex("worker 3 joined; workers [0-9, ]*3 go on"));
      EXPECT_EQ(report(run).at("recoveries").size(), 2u);
      expect_nothing_left({});
    }
  }
}

TEST_F(WorkersSurvive, ReplacedWorkersMayBeLostToo) {
  for (uint64_t round = 0; round < seed_count(4); ++round) {
    std::mt19937_64 random(round);
    const std::string fabric = round % 2 == 0 ? "shm" : "tcp", run = fmt::format("run{}", round);
    SCOPED_TRACE(run);
    // One in any case: where nothing else runs, all may be over before the others are hit.
    write_faults({{"kill", static_cast<int>(random() % 3), "gradient", 1 + random() % kMidway}});
    Words words = train("cnn", run, 3, fabric);
    words.insert(words.end(), {"--respawn", "--faults", "faults.toml"});
    Process process = start(words);
    std::map<int, Watched> seen = wait_for_workers(process, 3);
    for (int kills = 0; kills < 4; ++kills) {
      std::map<int, Watched> workers = workers_of(process);
      if (workers.size() < 2) continue;
      auto victim = workers.begin();
      std::advance(victim, random() % workers.size());
      if (!victim->second.ended_within(std::chrono::milliseconds(random() % 200)))
        victim->second.signal(SIGKILL);
      seen.merge(workers);
    }
    const int code = process.wait();
    // All three may have been lost before the first of their replacements was there. Then there is
    // nobody to tidy their folder.
    if (code == 1 && process.error().find("error: worker") != std::string::npos) {
      expect_all_ended(seen);
      std::filesystem::remove_all(folder_ / run);
      continue;
    }
    EXPECT_EQ(code, 0) << process.error();
    expect_undisturbed("cnn", run, seen);
    EXPECT_GT(lost_in(run), 0u);
  }
}

TEST_F(WorkersSurvive, AFileOfFaultsThatMakesNoSenseIsRefused) {
  const auto refuse = [&](const std::string& text) {
    write("faults.toml", text);
    return refused(2, {"train", "mlp.toml", "--faults", "faults.toml"});
  };
  EXPECT_THAT(refuse("[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"lunch\"\n"),
              AllOf(HasSubstr("faults.toml:4:9: point is \"lunch\""), HasSubstr("announced")));
  EXPECT_THAT(refuse("[[fault]]\nworker = 1\npoint = \"step\"\n"), HasSubstr("action is missing"));
  EXPECT_THAT(refuse("[[fault]]\naction = \"kill\"\nworker = -1\npoint = \"step\"\n"),
              HasSubstr("worker is -1"));
  EXPECT_THAT(refuse("[[fault]]\naction = \"corrupt\"\nwhen = 3\n"), HasSubstr("unknown key when"));
  EXPECT_THAT(refuse("fault = 3\n"), HasSubstr("is not a list of faults"));
  EXPECT_THAT(refuse("[[fault]\n"), HasSubstr("is not TOML"));
}

}  // namespace
}  // namespace starling
