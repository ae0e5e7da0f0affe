// What happens when workers or their launcher die: real processes and signals. A run is caught
// midway without sleeps: it writes a line per epoch into a pipe of one page, which the test reads
// (process.h), so that it can't end before the signal.
#include "cluster/worker_place.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/tcp/socket.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

constexpr int kPagedEpochs = 60;  // a page of lines is about 40

class WorkersFault : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  Words train(const std::string& run, int workers, const std::string& fabric) const {
    return {"train",     "mlp.toml",
            "--run-dir", run,
            "--workers", fmt::format("{}", workers),
            "--lanes",   "1",
            "--set",     "strategy.fabric=" + fabric,
            "--set",     fmt::format("training.epochs={}", kPagedEpochs),
            "--set",     "checkpoint.every_steps=11"};
  }

  // Waits until a run is well under way and has a checkpoint, which is written in the background.
  // Its workers.
  std::map<int, Watched> midway(Process& process, const std::string& run) const {
    EXPECT_TRUE(process.wait_for_line(fmt::format("epoch 4/{}", kPagedEpochs))) << process.error();
    const auto end = Process::Clock::now() + kSoon;
    while (!has_checkpoint(run) && Process::Clock::now() < end) std::this_thread::yield();
    return workers_of(process);
  }

  bool has_checkpoint(const std::string& run) const {
    std::error_code not_there;  // the folder comes with the first checkpoint
    const auto folder = folder_ / run / "checkpoints";
    for (const auto& entry : std::filesystem::directory_iterator(folder, not_there)) {
      if (entry.path().filename().string().starts_with("step-")) return true;
    }
    return false;
  }

  // Goes on with another number of workers, and compares with a run that nothing happened to.
  void expect_resumes(const std::string& run, int workers, const std::string& fabric) const {
    if (!exists("whole")) done(train("whole", 1, "shm"));
    Words words = train(run, workers, fabric);
    words.push_back("--resume");
    EXPECT_THAT(done(words).error, HasSubstr("resumed from"));
    EXPECT_EQ(report(run).at("workers"), workers);
    EXPECT_EQ(hash(run), hash("whole"));
    EXPECT_EQ(to_text(report(run).at("train_loss")), to_text(report("whole").at("train_loss")));
    EXPECT_EQ(report(run).at("samples_unique"), kPagedEpochs * kSamples);
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("whole/ledger.jsonl"));
    expect_nothing_left({});
  }

  // Reads all it says, and expects it to be over soon.
  static int end_of(Process& process) {
    const auto begin = Process::Clock::now();
    const int code = process.wait();
    EXPECT_LT(Process::Clock::now() - begin, kSoon) << process.error();
    return code;
  }

  void kill_one(int rank, const std::string& fabric) const {
    const std::string run = fmt::format("killed{}_{}", rank, fabric);
    SCOPED_TRACE(run);
    Words words = train(run, 3, fabric);
    words.insert(words.end(), {"--set", "strategy.survive=false"});
    Process process = start(words);
    const auto workers = midway(process, run);
    ASSERT_EQ(workers.size(), 3u);
    workers.at(rank).signal(SIGKILL);
    EXPECT_EQ(end_of(process), 1);
    EXPECT_THAT(process.error(),
                HasSubstr(fmt::format("error: worker {} was ended by signal 9", rank)));
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      EXPECT_THAT(
          process.error(),
          ContainsRegex(fmt::format(
              "error: (all_reduce step [0-9]+|evaluation|the epoch's figures|saving weights), "
              "worker {}: [a-z_]+ [^\n]* peer {} [^\n]* bytes",
              other, rank)));
    }
    expect_all_ended(workers);
    expect_resumes(run, rank == 0 ? 4 : 2, fabric);
  }
};

TEST_F(WorkersFault, LostWorkerEndsTheRunAndItResumesToTheSameBits) {
  for (const int rank : {0, 2}) {
    for (const char* fabric : {"shm", "tcp"}) kill_one(rank, fabric);
  }
}

// It is no failure to save, which training would go on after.
TEST_F(WorkersFault, TheChiefLostWhileTheBestWeightsAreSavedEndsTheRun) {
  write("faults.toml", "[[fault]]\naction = \"kill\"\nworker = 0\npoint = \"weights\"\nstep = 4\n");
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Words words = train(fabric, 3, fabric);
    words.insert(words.end(), {"--set", "strategy.survive=false", "--faults", "faults.toml"});
    const std::string error = refused(1, words);
    EXPECT_THAT(error, HasSubstr("error: worker 0 was ended by signal 9"));
    for (const int other : {1, 2}) {  // who is late has just begun what comes before
      EXPECT_THAT(
          error, ContainsRegex(fmt::format(
                     "error: (saving weights|the epoch's figures), worker {}: [^\n]* peer 0 [^\n]*",
                     other)));
    }
    EXPECT_THAT(error, Not(HasSubstr("training goes on")));
  }
}

TEST_F(WorkersFault, NoWorkerOutlivesItsLauncher) {
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, 3, fabric));
    const auto workers = midway(process, fabric);
    ASSERT_EQ(workers.size(), 3u);
    process.signal(SIGKILL);
    EXPECT_EQ(end_of(process), 128 + SIGKILL);
    expect_all_ended(workers);
    expect_resumes(fabric, 2, fabric);
  }
}

// No checkpoint was due before.
TEST_F(WorkersFault, WorkersWhoseLauncherDiesSaveACheckpoint) {
  for (const auto& [strategy, fabric] :
       {std::pair{"all_reduce", "shm"}, {"all_reduce", "tcp"}, {"sharded", "tcp"}}) {
    const std::string run = fmt::format("{}_{}", strategy, fabric);
    SCOPED_TRACE(run);
    Words words = train(run, 3, fabric);
    words.insert(words.end(), {"--strategy", strategy, "--set", "checkpoint.every_steps=1000000",
                               "--set", "checkpoint.every_seconds=0"});
    Process process = start(words);
    EXPECT_TRUE(process.wait_for_line(fmt::format("epoch 4/{}", kPagedEpochs))) << process.error();
    const auto workers = workers_of(process);
    ASSERT_EQ(workers.size(), 3u);
    EXPECT_FALSE(has_checkpoint(run));
    process.signal(SIGKILL);
    EXPECT_EQ(end_of(process), 128 + SIGKILL);
    expect_all_ended(workers);
    EXPECT_TRUE(has_checkpoint(run));
    EXPECT_THAT(process.error(),
                AllOf(HasSubstr("a checkpoint is saved. Go on with:"), Not(HasSubstr("error:"))));
    EXPECT_EQ(report(run).at("stopped_by"), "signal");
    expect_resumes(run, 2, fabric);
  }
}

// What the launcher passed on before it died asks for the same, and is not hurried by its death.
TEST_F(WorkersFault, WorkersWhoseLauncherIsToldToStopAndDiesSaveACheckpoint) {
  Words words = train("run", 3, "shm");
  words.insert(words.end(),
               {"--set", "checkpoint.every_steps=1000000", "--set", "checkpoint.every_seconds=0"});
  Process process = start(words);
  EXPECT_TRUE(process.wait_for_line(fmt::format("epoch 4/{}", kPagedEpochs))) << process.error();
  const auto workers = workers_of(process);
  ASSERT_EQ(workers.size(), 3u);
  workers.at(1).signal(SIGSTOP);  // the others can't end without it
  process.signal(SIGTERM);
  EXPECT_TRUE(process.wait_for_line("stopping: saving")) << process.error();
  process.signal(SIGKILL);
  workers.at(1).signal(SIGCONT);
  EXPECT_EQ(end_of(process), 128 + SIGKILL);
  expect_all_ended(workers);
  EXPECT_TRUE(has_checkpoint("run")) << process.error();
  expect_resumes("run", 2, "shm");
}

// A step would take its thread a quarter of an hour, and the others wait for it.
TEST_F(WorkersFault, AStuckWorkerEndsEvenIfTheGuardianIsKilledToo) {
  write("slow.toml", "[[fault]]\naction = \"slow\"\nworker = 1\nfactor = 100000000\nstep = 20\n");
  Words words = train("run", 3, "shm");
  words.insert(words.end(), {"--faults", "slow.toml"});
  Process process = start(words);
  const auto workers = midway(process, "run");
  ASSERT_EQ(workers.size(), 3u);
  const Watched guardian(workers.at(1).group());
  guardian.signal(SIGKILL);
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  for (const auto& [rank, worker] : workers) EXPECT_TRUE(worker.ended_within(2 * kSoon));
  expect_resumes("run", 2, "shm");
}

// Nobody is left to lend them samples.
TEST_F(WorkersFault, WorkersThatTrainApartEndWithTheirLauncher) {
  for (const char* strategy : {"parameter_server", "local_sgd"}) {
    SCOPED_TRACE(strategy);
    Words words = train(strategy, 3, "shm");
    words.insert(words.end(), {"--strategy", strategy});
    if (strategy == std::string("parameter_server"))
      words.insert(words.end(), {"--set", "strategy.consistency=async"});
    Process process = start(words);
    const auto workers = midway(process, strategy);
    ASSERT_EQ(workers.size(), 3u);
    process.signal(SIGKILL);
    EXPECT_EQ(end_of(process), 128 + SIGKILL);
    expect_all_ended(workers);
    words.push_back("--resume");
    EXPECT_THAT(done(words).error, HasSubstr("resumed from"));
    EXPECT_EQ(report(strategy).at("samples_unique"), kPagedEpochs * kSamples);
  }
}

// It is not there to be asked how to go on without the other.
TEST_F(WorkersFault, ALossAfterTheLaunchersEndsTheRun) {
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, 3, fabric));
    const auto workers = midway(process, fabric);
    ASSERT_EQ(workers.size(), 3u);
    workers.at(1).signal(SIGSTOP);  // the others can't get on
    process.signal(SIGKILL);
    workers.at(1).signal(SIGKILL);
    EXPECT_EQ(end_of(process), 128 + SIGKILL);
    expect_all_ended(workers);
    expect_resumes(fabric, 2, fabric);
  }
}

TEST_F(WorkersFault, LossOfAllWorkersEndsTheRun) {
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, 4, fabric));
    const auto workers = midway(process, fabric);
    ASSERT_EQ(workers.size(), 4u);
    for (const auto& [rank, worker] : workers) worker.signal(SIGSTOP);  // none ends by itself
    for (const auto& [rank, worker] : workers) worker.signal(SIGKILL);
    EXPECT_EQ(end_of(process), 1);
    for (const auto& [rank, worker] : workers)
      EXPECT_THAT(process.error(),
                  ContainsRegex(fmt::format("worker {} was [^\n]*ended by signal 9", rank)));
    expect_all_ended(workers);
    expect_resumes(fabric, 1, fabric);
  }
}

TEST_F(WorkersFault, SignalsToTheLauncherSaveACheckpoint) {
  for (const auto& [signal, fabric] : {std::pair{SIGTERM, "shm"}, std::pair{SIGINT, "tcp"}}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, 3, fabric));
    const auto workers = midway(process, fabric);
    process.signal(signal);
    EXPECT_EQ(end_of(process), 75) << process.error();
    EXPECT_THAT(process.error(), HasSubstr("checkpoint is saved"));
    EXPECT_THAT(process.error(), Not(HasSubstr("error:")));
    EXPECT_EQ(count(process.error(), "stopping: saving"), 1);
    EXPECT_THAT(process.error(), Not(HasSubstr("[worker ")));
    expect_nothing_left(workers);
    EXPECT_EQ(report(fabric).at("stopped_by"), "signal");
    expect_resumes(fabric, 7, fabric);
  }
}

// It sends its signal to the launcher, and then to all of the group, which has the launcher too.
TEST_F(WorkersFault, TimeoutSavesACheckpoint) {
  for (const int workers : {1, 3}) {
    const std::string run = fmt::format("{}_workers", workers);
    SCOPED_TRACE(run);
    Words words = train(run, workers, "shm");
    words.insert(words.begin(), {"/usr/bin/timeout", "--preserve-status", "60", STARLING_COMMAND});
    Process process(words, {.folder = folder_.string()});
    midway(process, run);
    process.signal(SIGTERM);  // as if the time were over
    EXPECT_EQ(end_of(process), 75) << process.error();
    EXPECT_THAT(process.error(), AllOf(HasSubstr("checkpoint is saved"), Not(HasSubstr("error:"))));
    expect_resumes(run, 2, "shm");
  }
}

TEST_F(WorkersFault, ATerminalThatClosesSavesACheckpointButNotUnderNohup) {
  for (const int workers : {1, 3}) {
    for (const bool ignored : {false, true}) {
      const std::string run = fmt::format("{}_{}", workers, ignored);
      SCOPED_TRACE(run);
      Words words = train(run, workers, "shm");
      words.insert(words.begin(), STARLING_COMMAND);
      if (ignored) words.insert(words.begin(), "/usr/bin/nohup");
      Process process(words, {.folder = folder_.string()});
      midway(process, run);
      process.signal(SIGHUP);
      EXPECT_EQ(end_of(process), ignored ? 0 : 75) << process.error();
      EXPECT_EQ(count(process.error(), "checkpoint is saved"), ignored ? 0 : 1);
      if (!ignored) expect_resumes(run, 2, "shm");
    }
  }
}

// As soon as the workers are there, which can't handle signals yet.
TEST_F(WorkersFault, ASignalAtTheStartSavesACheckpointToo) {
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, 3, fabric));
    const auto workers = wait_for_workers(process, 3);
    process.signal(SIGTERM);
    EXPECT_EQ(end_of(process), 75) << process.error();
    EXPECT_EQ(count(process.error(), "stopping: saving"), 1);
    EXPECT_THAT(process.error(), AllOf(HasSubstr("checkpoint is saved"), Not(HasSubstr("error:"))));
    expect_nothing_left(workers);
    expect_resumes(fabric, 2, fabric);
  }
}

// Ctrl-C goes to all of the terminal's foreground group.
TEST_F(WorkersFault, CtrlCSavesOneCheckpointAndASecondEndsAllAtOnce) {
  for (const bool twice : {false, true}) {
    const std::string run = twice ? "twice" : "once";
    SCOPED_TRACE(run);
    Words words = train(run, 3, "shm");
    words.insert(words.begin(), {"/usr/bin/setsid", STARLING_COMMAND});
    Process process(words, {.folder = folder_.string()});
    const auto workers = midway(process, run);
    ASSERT_EQ(workers.size(), 3u);
    if (twice) {
      for (const auto& [rank, worker] : workers) worker.signal(SIGSTOP);  // none ends by itself
      process.signal(SIGTERM);  // another one: the same would count once
    }
    kill(-process.id(), SIGINT);
    EXPECT_EQ(end_of(process), twice ? 1 : 75) << process.error();
    EXPECT_EQ(count(process.error(), "s after a second signal: it is killed"), twice ? 3 : 0);
    expect_all_ended(workers);
    expect_resumes(run, 2, "shm");
  }
}

TEST_F(WorkersFault, WhatIsWrongWithTheJobIsToldOnce) {
  const auto refuse = [this](int code, const Words& settings) {
    Words words = {"train", "mlp.toml", "--workers", "3"};
    words.insert(words.end(), settings.begin(), settings.end());
    const std::string error = refused(code, words);
    expect_told_once(error);
    return error;
  };
  for (const char* fabric : {"strategy.fabric=shm", "strategy.fabric=tcp"}) {
    SCOPED_TRACE(fabric);
    EXPECT_THAT(refuse(2, {"--set", fabric, "--set", "shards=2"}),
                AllOf(HasSubstr("3 workers for 2 shards"), HasSubstr("use --workers 2 or less")));
    // By all before the run, ...
    EXPECT_THAT(refuse(2, {"--set", fabric, "--set", "training.save_best.value=val_joy"}),
                HasSubstr("val_joy"));
    EXPECT_FALSE(exists("runs"));
    // ... by the chief alone, ...
    write("file", "");
    EXPECT_THAT(refuse(2, {"--set", fabric, "--run-dir", "file/run"}), HasSubstr("file"));
    // ... and in the middle of it.
    EXPECT_THAT(refuse(1, {"--set", fabric, "--set", "optimizer.learning_rate=1e30", "--set",
                           "optimizer.name=sgd", "--run-dir", fabric}),
                HasSubstr("not finite"));
  }
  const std::string job = read("mlp.toml");
  write("default.toml", std::string(job).replace(job.find("shards ="), 1, "# s"));
  EXPECT_THAT(refused(2, {"train", "default.toml", "--workers", "1000"}),
              StartsWith("error: 1000 workers for 8 shards"))
      << "before any is started";
  write("bad.toml", job + "\n[nonsense]\n");
  expect_told_once(refused(2, {"train", "bad.toml", "--workers", "3"}));
}

TEST_F(WorkersFault, BadDataAreToldOnce) {
  const std::string job = read("mlp.toml");
  write("npy.toml", std::string(job).replace(job.find("source = \"synthetic\""), 20,
                                             "source = \"npy\"\ntrain_features = \"x.npy\"\n"
                                             "train_labels = \"y.npy\"\n"));
  const std::string error = refused(2, {"train", "npy.toml", "--workers", "3"});
  expect_told_once(error);
  EXPECT_THAT(error, HasSubstr(".npy: there is no such file"));
}

// Shared memory is refused in words: in the launcher, and later in the workers.
TEST_F(WorkersFault, NoRoomForSharedMemoryIsToldOnceWithTheFix) {
  for (const char* limit : {"--fsize=1000000", "--fsize=2000000"}) {
    SCOPED_TRACE(limit);
    Process process({"/usr/bin/prlimit", limit, STARLING_COMMAND, "train", "mlp.toml", "--workers",
                     "3", "--lanes", "1", "--set", "model.layers.0.units=9000"},
                    {.folder = folder_.string()});
    EXPECT_EQ(end_of(process), 1) << process.error();
    expect_told_once(process.error());
    EXPECT_THAT(process.error(), AllOf(HasSubstr("MiB of shared memory: files are limited to "),
                                       HasSubstr("hint: lift the limit with `ulimit -f")));
    expect_nothing_left({});
  }
}

TEST_F(WorkersFault, AFullDevShmIsNoHindrance) {
  const auto in_own_mounts = [this](const std::string& script, const Words& words) {
    Words all = {"/usr/bin/unshare", "-rm", "/bin/sh", "-c", script, "sh"};
    all.insert(all.end(), words.begin(), words.end());
    Process process(all, {.folder = folder_.string()});
    const int code = process.wait();
    return std::pair(code, process.error());
  };
  const std::string fill =
      "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/full && ";
  if (const auto [code, error] = in_own_mounts(fill + "true", {}); code != 0)
    GTEST_SKIP() << "nothing can be mounted here: " << error;
  EXPECT_NE(in_own_mounts(fill + "echo more >/dev/shm/more", {}).first, 0) << "it is not full";
  Words words = train("full", 3, "shm");
  words.insert(words.begin(), STARLING_COMMAND);
  const auto [code, error] = in_own_mounts(fill + "exec \"$@\"", words);
  EXPECT_EQ(code, 0) << error;
  EXPECT_EQ(report("full").at("workers"), 3);
}

TEST_F(WorkersFault, APortInUseIsToldWithTheFix) {
  const TcpListener taken;
  const auto run_with = [&](const std::string& variable) {
    Process process(
        {STARLING_COMMAND, "train", "mlp.toml", "--workers", "2", "--set", "strategy.fabric=tcp"},
        {.folder = folder_.string(), .variables = {variable}});
    const int code = end_of(process);
    if (code != 0) expect_told_once(process.error());
    return std::pair(code, process.error());
  };
  uint16_t other = 0;  // that is free again
  {
    const TcpListener was_taken;
    other = was_taken.address().port;
  }
  const auto [code, error] =
      run_with(fmt::format("STARLING_PORTS={},{}", other, taken.address().port));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("can't listen on 127.0.0.1:{}: Address already in "
                                                 "use",
                                                 taken.address().port)),
                           HasSubstr("another program has this port: choose another")));
  for (const auto& [ports, why] : {std::pair{"1234", "1 ports for 2 workers"},
                                   {"12,x", "\"x\" is no port"},
                                   {"12,70000", "\"70000\" is no port"},
                                   {"12,", "\"\" is no port"}}) {
    const auto [refused, message] = run_with(fmt::format("STARLING_PORTS={}", ports));
    EXPECT_EQ(refused, 2);
    EXPECT_THAT(message, AllOf(HasSubstr(why), HasSubstr("give one for each worker")));
  }
  EXPECT_FALSE(exists("runs/mlp"));
}

// Two workers in one world, started by hand.
class WorkersByHand : public WorkersFault {
 protected:
  // The second with another job file, other settings, or more in its environment.
  void expect_refused(const std::string& job, const Words& settings, const std::string& difference,
                      const Words& variables = {}) const {
    for (const FabricKind fabric : {FabricKind::kShm, FabricKind::kTcp}) {
      SCOPED_TRACE(fmt::format("{} {}", fabric == FabricKind::kShm ? "shm" : "tcp", difference));
      const SharedSegment segment = ShmFabric::make_segment({.world = 2});
      const std::array<TcpListener, 2> listeners;
      WorkerPlace place{.workers = 2, .fabric = fabric};
      std::vector<WorkerPlace> places;
      for (place.rank = 0; place.rank < 2; ++place.rank) {
        place.ports.push_back(listeners[static_cast<size_t>(place.rank)].address().port);
        // Unlike the first, a child inherits a second descriptor.
        place.descriptor =
            dup(fabric == FabricKind::kShm ? segment.fd()
                                           : listeners[static_cast<size_t>(place.rank)].fd());
        places.push_back(place);
      }
      places[0].ports = places[1].ports;
      {
        Process chief = worker(places[0], "mlp.toml", {}, {}),
                other = worker(places[1], job, settings, variables);
        for (Process* process : {&chief, &other}) {
          EXPECT_EQ(end_of(*process), 2) << process->error();
          EXPECT_THAT(process->error(),
                      AllOf(HasSubstr("workers 0 and 1 have not the same"), HasSubstr(difference),
                            HasSubstr("hint: start all workers with")));
        }
      }
      for (const WorkerPlace& own : places) close(own.descriptor);
      EXPECT_FALSE(exists("run/report.json"));
      expect_nothing_left({});
    }
  }

 private:
  Process worker(const WorkerPlace& place, const std::string& job, const Words& settings,
                 const Words& variables) const {
    Words words = {STARLING_COMMAND, "train",   job, "--run-dir", "run",
                   "--overwrite",    "--lanes", "1"};
    words.insert(words.end(), settings.begin(), settings.end());
    Process::Options options{.folder = folder_.string(), .variables = variables};
    for (const auto& [name, value] : place.variables())
      options.variables.push_back(fmt::format("{}={}", name, value));
    return Process(words, options);
  }
};

TEST_F(WorkersByHand, OfDifferentJobsRefuseOneAnother) {
  const auto refuse = [this](const char* setting, const char* difference) {
    expect_refused("mlp.toml", {"--set", setting}, difference);
  };
  refuse("seed=2", "job: \"seed 1\" against \"seed 2\"");
  refuse("shards=5", "job: \"shards 16\" against \"shards 5\"");
  refuse("training.batch=20", "job: \"batch 40\" against \"batch 20\"");
  refuse("training.epochs=3", "job: \"epochs 2\" against \"epochs 3\"");
  refuse("optimizer.learning_rate=0.5", "\"learning_rate 0.001\" against \"learning_rate 0.5\"");
  refuse("optimizer.name=sgd", "model: \"optimizer adam\" against \"optimizer sgd\"");
  refuse("data.samples=41", "job: \"samples 130\" against \"samples 41\"");
  refuse("data.seed=3", "job: \"training data 130 of ");
  refuse("non_finite=skip", "job: \"non_finite 0\" against \"non_finite 1\"");
  refuse("isa=sse4", "against \"isa sse4\"");
  refuse("model.layers.1.weight_decay=0.5", "weight_decay of layers");
}

// The instruction set is the same for our own kernels, but not for oneDNN's.
TEST_F(WorkersByHand, OfDifferentNumbersRefuseOneAnother) {
  // A cap of ours would count for oneDNN, too, and more than its own.
  const char* const found = std::getenv("STARLING_ISA");
  const std::string cap = found == nullptr ? "" : found;
  unsetenv("STARLING_ISA");
  expect_refused("mlp.toml", {}, " sse41\"", {"ONEDNN_MAX_CPU_ISA=SSE41"});
  if (!cap.empty()) setenv("STARLING_ISA", cap.c_str(), 1);
}

TEST_F(WorkersByHand, OfDifferentModelsRefuseOneAnother) {
  // The larger model must not look for its weights beyond what is shared, whoever has it.
  const std::string job = read("mlp.toml");
  const auto with_units = [&](const char* units) {
    return std::string(job).replace(job.find("units = 24"), 10, units);
  };
  write("other.toml", with_units("units = 99"));
  expect_refused("other.toml", {}, "have not the same model: \"dense_1.weight ");
  write("other.toml", job);
  write("mlp.toml", with_units("units = 99"));
  expect_refused("other.toml", {}, "have not the same model: \"dense_1.weight ");
  write("mlp.toml", with_units("units = 23"));  // fills as many pages
  expect_refused("other.toml", {}, "have not the same model: \"dense_1.weight ");
}

}  // namespace
}  // namespace starling
