// Workers that go on by themselves: `parameter_server`, asynchronous, with bounded staleness, and
// with backup workers; `local_sgd`, `elastic_averaging`, `incremental`, `gossip`. Real processes
// that are slowed, killed, frozen, added and retired; every sample is trained on just once, and the
// model learns.
#include <sstream>

#include "seeds.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Way {
  const char* consistency;  // or a strategy
  const char* fabric;
  int servers;
  int ahead = 0;

  bool is(const char* name) const { return name == std::string(consistency); }
  bool is_local() const {
    return is("local_sgd") || is("elastic_averaging") || is("incremental") || is("gossip");
  }
};

class WorkersApart : public WorkersTest, public testing::WithParamInterface<Way> {
 protected:
  static constexpr int kWorkers = 3, kEpochs = 4, kSamplesApart = 1000, kEndless = 1'000'000;

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  static Words apart(const Way& way, int epochs, const Words& more = {}) {
    Words words = {"train",
                   "mlp.toml",
                   "--no-progress",
                   "--strategy",
                   way.is_local() ? way.consistency : "parameter_server",
                   "--workers",
                   fmt::format("{}", kWorkers),
                   "--lanes",
                   "1",
                   "--servers",
                   fmt::format("{}", way.servers),
                   "--set",
                   fmt::format("strategy.fabric={}", way.fabric),
                   "--set",
                   way.is_local() ? std::string("strategy.period=2")
                                  : fmt::format("strategy.consistency={}", way.consistency),
                   "--set",
                   fmt::format("strategy.ahead={}", way.ahead),
                   "--set",
                   fmt::format("training.epochs={}", epochs),
                   "--set",
                   kQuickly,
                   "--set",
                   fmt::format("data.samples={}", kSamplesApart),
                   "--set",
                   "data.test_samples=300"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Until the run is well under way.
  void await_training(const std::string& run) const {
    const auto end = Process::Clock::now() + kSoon;
    while (Process::Clock::now() < end) {
      const Ended ended = this->run({"status", run, "--json"});
      if (ended.code == 0 && parse_json(ended.output).at("step") > 20) return;
    }
    ADD_FAILURE() << run << " never got under way";
  }

  // All samples of all epochs, each once.
  void expect_each_once(const std::string& run, int epochs) const {
    const Json found = report(run);
    EXPECT_EQ(found.at("samples_unique"), epochs * kSamplesApart);
    EXPECT_EQ(found.at("samples_duplicated"), 0);
    EXPECT_EQ(found.at("samples_missing"), 0);
    EXPECT_EQ(count(read(run + "/ledger.jsonl"), "\n"), epochs);
    expect_nothing_left({});
  }
  // That were applied, by how stale they were.
  uint64_t gradients(const std::string& run) const {
    const Json found = report(run);
    uint64_t sum = 0;
    for (const Json& number : found.at("staleness")) sum += number.get<uint64_t>();
    return sum;
  }
  // By history.csv.
  uint64_t bytes_of_epochs(const std::string& run) const {
    std::istringstream lines(read(run + "/history.csv"));
    const auto cells = [&] {
      std::vector<std::string> found;
      std::string line, cell;
      if (std::getline(lines, line)) {
        for (std::istringstream rest(line); std::getline(rest, cell, ',');) found.push_back(cell);
      }
      return found;
    };
    const std::vector<std::string> names = cells();
    const auto column = std::find(names.begin(), names.end(), "bytes_sent") - names.begin();
    uint64_t sum = 0;
    for (auto line = cells(); !line.empty(); line = cells())
      sum += std::stoull(line.at(static_cast<size_t>(column)));
    return sum;
  }
  // And what is learnt from so few.
  void expect_trained(const std::string& run) const {
    expect_each_once(run, kEpochs);
    EXPECT_GT(report(run).at("test_accuracy"), kLearnt);
  }
};

TEST_P(WorkersApart, EverySampleOnceAndItLearns) {
  done(apart(GetParam(), kEpochs, {"--run-dir", "run"}));
  expect_trained("run");
  const Json found = report("run");
  EXPECT_EQ(found.at("workers"), kWorkers);
  EXPECT_EQ(found.at("servers"), GetParam().servers);
  EXPECT_GT(found.at("bytes_sent"), 0);
  EXPECT_EQ(found.at("exact"), false);
  for (const Json& worker : found.at("worker_times"))
    EXPECT_EQ(worker.at("shards"), 0) << "they don't divide a batch: " << worker;
  if (GetParam().is_local()) return;
  EXPECT_EQ(found.at("consistency"), GetParam().consistency);
  EXPECT_GE(gradients("run"), uint64_t{kEpochs} * kSamplesApart / 40);
  if (GetParam().is("backup")) {
    EXPECT_EQ(found.at("staleness").size(), 1u) << "a round has one version";
  }
}

// What may befall two workers so close together that a slice is lost with its copy: how close is a
// matter of time here. Then the run says so, and goes on from its checkpoint, if there is one; as
// it does when the disk is full just when it writes its results.
TEST_P(WorkersApart, KillsAndFreezesAreSurvived) {
  for (uint64_t seed = 0; seed < seed_count(10); ++seed) {
    const std::string run = fmt::format("seed{}", seed);
    SCOPED_TRACE(run);
    const Words words =
        apart(GetParam(), kEpochs, {"--run-dir", run, "--set", "strategy.heartbeat_limit=1"});
    const Ended ended = this->run(joined(words, {"--faults", fmt::format("{}", seed)}));
    if (ended.code != 0) {
      EXPECT_THAT(
          ended.error,
          AllOf(HasSubstr("error: "),
                AnyOf(AllOf(HasSubstr("these were lost: slice"), HasSubstr("--resume")),
                      ContainsRegex("error: cannot write [^\n]*: No space left on device"))));
      expect_nothing_left({});
      const std::string checkpoints = run + "/checkpoints";  // comes with the first of them
      const bool saved = exists(checkpoints) && !std::filesystem::is_empty(folder_ / checkpoints);
      done(joined(words, {saved ? "--resume" : "--overwrite"}));
    }
    expect_trained(run);
  }
}

// A worker, and one that serves: which may be the same.
TEST_P(WorkersApart, EachPointOfTheServiceIsMissedByNobody) {
  const int last = kWorkers + GetParam().servers - 1;
  const std::vector<std::pair<const char*, int>> points = {
      {"strategy", 0},   {"step", 1},      {"gradient", 0},   {"pushed", 1},   {"lend", last},
      {"applied", last}, {"sliced", last}, {"evaluation", 0}, {"added", last}, {"meet", 1}};
  for (const auto& [point, worker] : points) {
    // Where workers have optimizers of their own, none is cut into slices.
    if (GetParam().is_local() && point == std::string("sliced")) continue;
    if (!GetParam().is("incremental") && point == std::string("added")) continue;
    const bool gossips = GetParam().is("gossip");  // there are no servers
    if (!gossips && point == std::string("meet")) continue;
    if (gossips && (point == std::string("lend") || point == std::string("applied"))) continue;
    for (const char* action : {"kill", "freeze"}) {
      if (action == std::string("freeze") && point != std::string("applied")) continue;
      const std::string run = fmt::format("{}_{}", action, point);
      SCOPED_TRACE(run);
      write("faults.toml",
            fmt::format("[[fault]]\naction = \"{}\"\nworker = {}\npoint = \"{}\"\n{}", action,
                        worker, point, point == std::string("sliced") ? "" : "step = 2\n"));
      done(apart(
          GetParam(), kEpochs,
          {"--run-dir", run, "--faults", "faults.toml", "--set", "strategy.heartbeat_limit=1"}));
      expect_trained(run);
      EXPECT_EQ(lost_in(run), 1u);
    }
  }
}

TEST_P(WorkersApart, ABrokenLinkCostsOneOfItsEnds) {
  if (GetParam().fabric != std::string("tcp")) return;  // with shm there is none to break
  const int last = kWorkers + GetParam().servers - 1;
  write("faults.toml",
        fmt::format("[[fault]]\naction = \"link\"\nworker = 0\npeer = {}\npoint = \"gradient\"\n"
                    "step = 3\n",
                    last));
  done(apart(GetParam(), kEpochs, {"--run-dir", "run", "--faults", "faults.toml"}));
  expect_trained("run");
  const Json recovery = report("run").at("recoveries").at(0);
  EXPECT_THAT(to_text(recovery.at("lost")), AnyOf("[0]", fmt::format("[{}]", last)));
  EXPECT_THAT(recovery.at("how").get<std::string>(), HasSubstr("could not reach it"));
}

// A checkpoint is due after every update, so that one is while there is no room, whoever does most.
TEST_P(WorkersApart, WithoutRoomOnTheDiskTrainingGoesOn) {
  write("faults.toml", "[[fault]]\naction = \"disk\"\nstep = 2\nsteps = 10\n");
  const Ended ended = done(
      apart(GetParam(), kEpochs,
            {"--run-dir", "run", "--faults", "faults.toml", "--set", "checkpoint.every_steps=1"}));
  EXPECT_THAT(ended.error, HasSubstr("a checkpoint was not saved, training goes on"));
  expect_trained("run");
}

// The thread that serves is stuck, and all others wait for it.
TEST_P(WorkersApart, AServiceThatIsStuckIsEndedAndMissedByNobody) {
  const std::string way = GetParam().consistency;
  const bool pushes = way == "backup";
  write("faults.toml",
        fmt::format("[[fault]]\naction = \"hang\"\nworker = {}\npoint = \"{}\"\nstep = 2\n",
                    pushes ? 1 : kWorkers + GetParam().servers - 1,
                    pushes            ? "pushed"
                    : way == "ssp"    ? "applied"
                    : way == "gossip" ? "meet"
                                      : "lend"));
  done(
      apart(GetParam(), kEpochs,
            {"--run-dir", "run", "--faults", "faults.toml", "--set", "strategy.progress_limit=2"}));
  expect_trained("run");
  EXPECT_EQ(lost_in("run"), 1u);
}

TEST_P(WorkersApart, AnybodyMayBeLost) {
  for (int victim = 0; victim < kWorkers + GetParam().servers; ++victim) {
    const std::string run = fmt::format("lost{}", victim);
    SCOPED_TRACE(run);
    Process process = start(apart(GetParam(), kEndless, {"--run-dir", run}));
    await_training(run);
    auto workers = wait_for_workers(process, static_cast<size_t>(kWorkers + GetParam().servers));
    workers.at(victim).signal(SIGKILL);
    ASSERT_TRUE(process.wait_for_line(fmt::format("worker {} was lost", victim)))
        << process.error();
    done({"stop", run});
    EXPECT_EQ(process.wait(), 75) << process.error();
    expect_nothing_left(workers);
    const int epoch = static_cast<int>(report(run).at("epochs")) + 1;
    const uint64_t gradients_before = gradients(run);
    done(apart(GetParam(), epoch, {"--run-dir", run, "--resume"}));
    expect_each_once(run, epoch);
    // The report is of all of the run.
    EXPECT_GE(gradients(run), gradients_before);
    if (GetParam().is("async") || GetParam().is("ssp")) {
      EXPECT_EQ(gradients(run), report(run).at("steps"));
    }
    EXPECT_GE(report(run).at("bytes_sent"), bytes_of_epochs(run));
  }
}

TEST_P(WorkersApart, WorkersJoinAndLeave) {
  Process process = start(apart(GetParam(), kEndless, {"--run-dir", "run"}));
  await_training("run");
  EXPECT_THAT(done({"join", "run"}).output, HasSubstr("the run has 4 workers now"));
  EXPECT_THAT(done({"leave", "run", "--worker", "0"}).output,
              HasSubstr("the run has 3 workers now"));
  EXPECT_THAT(done({"leave", "run", "--worker", "1"}).output,
              HasSubstr("the run has 2 workers now"));
  done({"stop", "run"});
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_EQ(report("run").at("workers"), 2);
  const int epoch = static_cast<int>(report("run").at("epochs")) + 1;
  // Every strategy goes on from what it saved.
  done({"train", "mlp.toml", "--no-progress", "--run-dir", "run", "--resume", "--set",
        fmt::format("training.epochs={}", epoch), "--set",
        fmt::format("data.samples={}", kSamplesApart), "--set", "data.test_samples=300"});
  EXPECT_EQ(report("run").at("strategy"), "single");
  expect_nothing_left({});
}

TEST_P(WorkersApart, AGradientThatIsNotFiniteEndsTheRunOnce) {
  const std::string error = refused(
      1, apart(GetParam(), kEpochs, {"--run-dir", "run", "--set", "optimizer.learning_rate=1e30"}));
  EXPECT_THAT(error, HasSubstr("is not finite"));
  expect_told_once(error);
  expect_nothing_left({});
}

TEST_P(WorkersApart, EverySampleOnceHoweverTheyAreDivided) {
  write("faults.toml", "[[fault]]\naction = \"slow\"\nworker = 1\nfactor = 5\n");
  if (GetParam().is("incremental")) return;  // who is ready takes the next task
  for (const char* partition : {"equal", "weighted", "dynamic"}) {
    SCOPED_TRACE(partition);
    // Checkpoints cut an epoch into stretches: shares are divided anew.
    done(apart(
        GetParam(), 2,
        {"--run-dir", partition, "--faults", "faults.toml", "--set",
         fmt::format("strategy.partition={}", partition), "--set", "checkpoint.every_steps=20"}));
    expect_each_once(partition, 2);
    const Json found = report(partition);
    EXPECT_EQ(found.at("partition"), partition);
    for (const Json& worker : found.at("worker_times")) {
      EXPECT_EQ(worker.at("shard_s") > 0, worker.at("worker") < kWorkers) << worker;
      EXPECT_GE(worker.at("compute_s"), 0);
      EXPECT_GT(worker.at("waiting_s"), 0);
    }
  }
}

std::string way_name(const testing::TestParamInfo<Way>& info) {
  return fmt::format("{}_{}{}", info.param.consistency, info.param.fabric, info.param.servers);
}
INSTANTIATE_TEST_SUITE_P(All, WorkersApart,
                         testing::Values(Way{"async", "shm", 0}, Way{"async", "tcp", 2, 1},
                                         Way{"ssp", "tcp", 0}, Way{"ssp", "shm", 1, 2},
                                         Way{"backup", "shm", 2}, Way{"backup", "tcp", 0},
                                         Way{"local_sgd", "shm", 0}, Way{"local_sgd", "tcp", 1},
                                         Way{"elastic_averaging", "tcp", 0},
                                         Way{"elastic_averaging", "shm", 1},
                                         Way{"incremental", "shm", 0}, Way{"incremental", "tcp", 1},
                                         Way{"gossip", "shm", 0}, Way{"gossip", "tcp", 0}),
                         way_name);

class WorkersApartSlices : public WorkersTest {
 protected:
  static constexpr int kSamplesWide = 2000;

  void SetUp() override {
    WorkersTest::SetUp();
    write("wide.toml", R"(
name = "wide"
[data]
source = "synthetic"
samples = 2000
test_samples = 100
features = [64]
classes = 4
[model]
layers = [{type = "dense", units = 1024, activation = "relu"}, {type = "dense", units = 4}]
[training]
batch = 32
[optimizer]
name = "adam"
)");
    write("slow.toml", "[[fault]]\naction = \"slow\"\nworker = 3\nfactor = 20\n");
  }

  static Words wide(int epochs) {
    return {"train",        "wide.toml",
            "--workers",    "2",
            "--servers",    "3",
            "--lanes",      "1",
            "--strategy",   "parameter_server",
            "--set",        "strategy.consistency=async",
            "--set",        fmt::format("training.epochs={}", epochs),
            "--faults",     "slow.toml",
            "--run-dir",    "run",
            "--no-progress"};
  }
};

TEST_F(WorkersApartSlices, ASlowServerKeepsLessFromTheNextEpochOn) {
  done(wide(3));
  EXPECT_GE(report("run").at("rebalances"), 1);
  EXPECT_EQ(report("run").at("samples_unique"), 3 * kSamplesWide);
  EXPECT_EQ(report("run").at("samples_duplicated"), 0);
  expect_nothing_left({});
}

// Its part of the state comes from slices of other sizes than it would cut itself.
TEST_F(WorkersApartSlices, AWorkerJoinsAfterSlicesWereCutAnew) {
  Process process = start(wide(1'000'000));
  const auto epochs = [&] { return count(read("run/ledger.jsonl"), "\n"); };
  const auto end = Process::Clock::now() + 6 * kSoon;
  while (Process::Clock::now() < end && (!exists("run/ledger.jsonl") || epochs() < 3)) {
    const Ended asked = run({"status", "run"});  // and meanwhile they train
  }
  EXPECT_THAT(done({"join", "run"}).output, HasSubstr("the run has 3 workers now"));
  const int before = static_cast<int>(epochs());
  while (Process::Clock::now() < end && epochs() < before + 2) run({"status", "run"});
  done({"stop", "run"});
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_GE(report("run").at("rebalances"), 1);
  EXPECT_GE(report("run").at("epochs"), before + 1);
  EXPECT_EQ(report("run").at("workers"), 3);
  expect_nothing_left({});
}

class WorkersApartBound : public WorkersApart {};

// With no gradient ahead of another, in shares of one size, all make their gradients in turns:
// while the slow one makes its own, each of the others can make one, however fast they are.
TEST_F(WorkersApartBound, ASlowWorkerHoldsTheOthers) {
  write("faults.toml", "[[fault]]\naction = \"slow\"\nworker = 1\nfactor = 20\n");
  const Ended ended =
      done(apart({"ssp", "shm", 0}, 1,
                 {"--run-dir", "run", "--faults", "faults.toml", "--set", "strategy.staleness=0",
                  "--set", "strategy.partition=equal", "--set", "checkpoint.enabled=false"}));
  EXPECT_THAT(ended.output, ContainsRegex("slow           worker 1 took [^\n]* longer than most\n"))
      << "and not how many shards it had";
  expect_each_once("run", 1);
  const Json found = report("run");
  EXPECT_LE(found.at("staleness").size(), size_t{kWorkers}) << found.at("staleness");
  // 334 or 333 samples each, 13 in a gradient.
  uint64_t gradients = 0;
  for (const Json& number : found.at("staleness")) gradients += number.get<uint64_t>();
  EXPECT_EQ(gradients, uint64_t{kWorkers} * 26);
}

class WorkersApartShards : public WorkersTest {};

// What they are lent is not cut into the shards of a batch, so nobody is without.
TEST_F(WorkersApartShards, ThereMayBeFewerThanWorkers) {
  write_mlp_job();
  const Words words = {"train", "mlp.toml", "--no-progress", "--workers", "5",  "--lanes",
                       "1",     "--set",    "shards=4",      "--run-dir", "run"};
  for (const Words& way :
       {Words{"--strategy", "parameter_server", "--set", "strategy.consistency=async"},
        Words{"--strategy", "local_sgd"}}) {
    SCOPED_TRACE(way[1]);
    done(joined(joined(words, way), {"--overwrite"}));
    const Json found = report("run");
    EXPECT_EQ(found.at("workers"), 5);
    EXPECT_EQ(found.at("samples_missing"), 0);
    EXPECT_EQ(found.at("samples_duplicated"), 0);
  }
  EXPECT_THAT(refused(2, joined(words, {"--overwrite"})),
              HasSubstr("5 workers for 4 shards: some would have none"));
}

class WorkersApartLearn : public WorkersTest {};

// The short form of tools/learn: an epoch, one seed, and so a wider margin.
TEST_F(WorkersApartLearn, EveryWayComesNearOneProcess) {
  write("cnn.toml", R"(
name = "cnn"
shards = 8
[data]
source = "fashion-mnist"
[model]
layers = [
  {type = "conv2d", filters = 8, kernel = 3, activation = "relu"},
  {type = "max_pool2d", window = 2},
  {type = "flatten"},
  {type = "dense", units = 10},
]
[training]
epochs = 1
batch = 64
[optimizer]
name = "adam"
)");
  const Words common = {"train",   "cnn.toml", "--no-progress", "--set", "checkpoint.enabled=false",
                        "--lanes", "1",        "--run-dir"};
  const auto accuracy = [&](const std::string& run, const Words& more) {
    Words words = common;
    words.push_back(run);
    words.insert(words.end(), more.begin(), more.end());
    done(words);
    return report(run).at("test_accuracy").get<double>();
  };
  const double alone = accuracy("alone", {});
  EXPECT_GT(alone, 0.83);
  for (const std::string way : {"async", "ssp", "backup"}) {
    EXPECT_GT(accuracy(way, {"--workers", "4", "--strategy", "parameter_server", "--set",
                             "strategy.consistency=" + way}),
              alone - 0.02)
        << way;
  }
  // These agree less often, which shows most in the beginning.
  EXPECT_GT(accuracy("local", {"--workers", "4", "--strategy", "local_sgd", "--set",
                               "strategy.outer=nesterov"}),
            alone - 0.04);
  EXPECT_GT(accuracy("incremental", {"--workers", "4", "--strategy", "incremental", "--set",
                                     "strategy.outer=nesterov"}),
            alone - 0.04);
  EXPECT_GT(accuracy("gossip", {"--workers", "4", "--strategy", "gossip"}), alone - 0.04);
  EXPECT_GT(
      accuracy("often", {"--workers", "4", "--strategy", "gossip", "--set", "strategy.period=1"}),
      alone - 0.04);
  // How far apart they are in the end is a matter of who met last, and so of chance: only those who
  // hardly ever met are further apart in each run.
  accuracy("rarely", {"--workers", "4", "--strategy", "gossip", "--set", "strategy.period=1000"});
  EXPECT_GT(report("rarely").at("disagreement"),
            2 * report("often").at("disagreement").get<double>())
      << "who meets is nearer";
  EXPECT_GT(accuracy("elastic", {"--workers", "4", "--strategy", "elastic_averaging"}),
            alone - 0.06);
}

class WorkersApartInput : public WorkersTest {};

TEST_F(WorkersApartInput, WhatMakesNoSenseIsRefused) {
  write_mlp_job();
  const auto error = [&](const Words& more) {
    Words words = {"train", "mlp.toml", "--workers", "2", "--lanes", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return refused(2, words);
  };
  EXPECT_THAT(error({"--set", "strategy.consistency=async"}),
              HasSubstr("--strategy parameter_server"));
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=eventual"}),
              AllOf(HasSubstr("sync"), HasSubstr("backup")));
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=backup",
                     "--set", "strategy.backup=2"}),
              HasSubstr("strategy.backup = 2 of 2 workers"));
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=async",
                     "--set", "strategy.partition=fair"}),
              AllOf(HasSubstr("dynamic"), HasSubstr("equal"), HasSubstr("weighted")));
  for (const char* damping : {"-0.1", "10.5", "nan"}) {
    EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=async",
                       "--set", fmt::format("strategy.damping={}", damping)}),
                AllOf(HasSubstr("strategy.damping"), HasSubstr("0 … 10")));
  }
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=async",
                     "--set", "strategy.ahead=8"}),
              AllOf(HasSubstr("strategy.ahead"), HasSubstr("0 … 7")));
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=async",
                     "--set", "training.accumulate=2"}),
              HasSubstr("training.accumulate"));
  EXPECT_THAT(error({"--strategy", "parameter_server", "--set", "strategy.consistency=async",
                     "--set", "strategy.survive=false"}),
              HasSubstr("strategy.survive = true"));
}

}  // namespace
}  // namespace starling
