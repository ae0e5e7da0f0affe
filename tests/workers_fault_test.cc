// What happens when workers or their launcher die: real processes and signals. A run is caught
// midway without sleeps: it writes a line per epoch into a pipe of one page, which the test reads
// (process.h), so that it can't end before the signal.
#include "cluster/worker_place.h"
#include "fabric/shm/shm_fabric.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kEpochs = 60;  // a page of lines is about 40

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
            "--set",     fmt::format("training.epochs={}", kEpochs),
            "--set",     "checkpoint.every_steps=11"};
  }

  // Waits until a run is well under way and has a checkpoint, which is written in the background.
  // Its workers.
  std::map<int, Watched> midway(Process& process, const std::string& run) const {
    EXPECT_TRUE(process.wait_for_line(fmt::format("epoch 4/{}", kEpochs))) << process.error();
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
    EXPECT_EQ(report(run).at("train_loss").dump(), report("whole").at("train_loss").dump());
    EXPECT_EQ(report(run).at("samples_unique"), kEpochs * kSamples);
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("whole/ledger.jsonl"));
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
    Process process = start(train(run, 3, fabric));
    const auto workers = midway(process, run);
    ASSERT_EQ(workers.size(), 3u);
    workers.at(rank).signal(SIGKILL);
    EXPECT_EQ(end_of(process), 1);
    EXPECT_THAT(process.error(),
                AllOf(HasSubstr(fmt::format("error: worker {} was ended by signal 9", rank)),
                      HasSubstr("all_reduce step ")));
    expect_nothing_left(workers);
    expect_resumes(run, rank == 0 ? 4 : 2, fabric);
  }
};

TEST_F(WorkersFault, LostWorkerEndsTheRunAndItResumesToTheSameBits) {
  for (const int rank : {0, 2}) {
    for (const char* fabric : {"shm", "tcp"}) kill_one(rank, fabric);
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
    expect_nothing_left(workers);
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
      EXPECT_THAT(process.error(), HasSubstr(fmt::format("worker {} was ended by signal 9", rank)));
    expect_nothing_left(workers);
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
    expect_nothing_left(workers);
    EXPECT_EQ(report(fabric).at("stopped_by"), "signal");
    expect_resumes(fabric, 7, fabric);
  }
}

TEST_F(WorkersFault, MoreWorkersThanShardsAreRefused) {
  for (const char* fabric : {"shm", "tcp"}) {
    EXPECT_THAT(refused(2, {"train", "mlp.toml", "--workers", "5", "--set", "shards=4", "--set",
                            fmt::format("strategy.fabric={}", fabric)}),
                AllOf(HasSubstr("5 workers for 4 shards"), HasSubstr("use --workers 4 or less")));
    EXPECT_FALSE(exists("runs/mlp/report.json"));
  }
}

// Two workers in one world, started by hand.
class WorkersByHand : public WorkersFault {
 protected:
  // The second with another job file, or other settings.
  void expect_refused(const std::string& job, const Words& settings,
                      const std::string& difference) const {
    SCOPED_TRACE(difference);
    const SharedSegment segment = ShmFabric::make_segment({.world = 2});
    const int descriptor = dup(segment.fd());  // unlike the first, a child inherits it
    {
      Process chief = worker(0, descriptor, "mlp.toml", {}),
              other = worker(1, descriptor, job, settings);
      for (Process* process : {&chief, &other}) {
        EXPECT_EQ(end_of(*process), 2) << process->error();
        EXPECT_THAT(process->error(),
                    AllOf(HasSubstr("workers 0 and 1 have not the same"), HasSubstr(difference),
                          HasSubstr("hint: start all workers with")));
      }
    }
    close(descriptor);
    EXPECT_FALSE(exists("run/report.json"));
  }

 private:
  Process worker(int rank, int descriptor, const std::string& job, const Words& settings) const {
    Words words = {STARLING_COMMAND, "train",   job, "--run-dir", "run",
                   "--overwrite",    "--lanes", "1"};
    words.insert(words.end(), settings.begin(), settings.end());
    Process::Options options{.folder = folder_.string()};
    for (const auto& [name, value] :
         WorkerPlace{.rank = rank, .workers = 2, .descriptor = descriptor}.variables())
      options.variables.push_back(fmt::format("{}={}", name, value));
    return Process(words, options);
  }
};

TEST_F(WorkersByHand, OfDifferentJobsRefuseOneAnother) {
  const auto refuse = [this](const char* setting, const char* difference) {
    expect_refused("mlp.toml", {"--set", setting}, difference);
  };
  refuse("seed=2", "\"seed 1\" against \"seed 2\"");
  refuse("training.batch=20", "\"batch 40\" against \"batch 20\"");
  refuse("training.epochs=3", "\"epochs 2\" against \"epochs 3\"");
  refuse("optimizer.learning_rate=0.5", "\"learning_rate 0.001\" against \"learning_rate 0.5\"");
  refuse("optimizer.name=sgd", " bytes\" against ");
  refuse("isa=sse4", "against \"isa sse4\"");
}

TEST_F(WorkersByHand, OfDifferentModelsRefuseOneAnother) {
  // The larger model must not look for its weights beyond what is shared, whoever has it.
  const std::string job = read("mlp.toml");
  const auto with_units = [&](const char* units) {
    return std::string(job).replace(job.find("units = 24"), 10, units);
  };
  write("other.toml", with_units("units = 99"));
  expect_refused("other.toml", {}, " bytes\" against ");
  write("other.toml", job);
  write("mlp.toml", with_units("units = 99"));
  expect_refused("other.toml", {}, " bytes\" against ");
  write("mlp.toml", with_units("units = 23"));  // fills as many pages
  expect_refused("other.toml", {}, "against \"model ");
}

}  // namespace
}  // namespace starling
