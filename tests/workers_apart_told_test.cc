// What workers that train apart tell of a run, and save of it: it is to be true whoever does most
// of the work. Real processes.
#include "workers_testing.h"

namespace starling {
namespace {

using Words = std::vector<std::string>;

class WorkersApartTold : public WorkersTest {
 protected:
  static constexpr int kEndless = 1'000'000, kStepsPerEpoch = 25;

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  // Two workers, with batches of 40.
  static Words train(const std::string& run, int epochs, int samples, const Words& more) {
    return joined({"train", "mlp.toml", "--no-progress", "--run-dir", run, "--workers", "2",
                   "--lanes", "1", "--set", fmt::format("training.epochs={}", epochs), "--set",
                   fmt::format("data.samples={}", samples)},
                  more);
  }
  static Words async(const Words& more = {}) {
    return joined({"--strategy", "parameter_server", "--set", "strategy.consistency=async"}, more);
  }

  // Once the run has come to that step.
  Json await_step(const std::string& run, uint64_t step) const {
    const auto end = Process::Clock::now() + 3 * kSoon;
    while (Process::Clock::now() < end) {
      const Ended ended = this->run({"status", run, "--json"});
      if (ended.code != 0) continue;
      Json status = parse_json(ended.output);
      if (status.at("steps") > 0 && status.at("step") >= step) return status;
    }
    ADD_FAILURE() << run << " never came to step " << step;
    return {};
  }

  // Expects that a run which is under way has come as far as it says, and not yet further.
  void expect_true(const std::string& run, const Json& status) const {
    EXPECT_EQ(status.at("steps"), uint64_t{kEndless} * kStepsPerEpoch);
    const int epochs = count(read(run + "/ledger.jsonl"), "\n") + 1;
    EXPECT_LE(status.at("step"), epochs * kStepsPerEpoch);
  }

  size_t checkpoints(const std::string& run) const {
    const std::filesystem::directory_iterator all(folder_ / run / "checkpoints");
    return static_cast<size_t>(std::count_if(begin(all), end(all), [](const auto& entry) {
      return entry.path().filename().string().starts_with("step-");
    }));
  }
};

// Worker 1 makes 400 of its 500 gradients: the updates of all of them count. That is two thirds of
// the run, since the other makes the last of them for both.
TEST_F(WorkersApartTold, OnlyGradientsUnderWayAreLostWithAWorker) {
  write("faults.toml",
        "[[fault]]\naction = \"slow\"\nfactor = 100\n"
        "[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"gradient\"\nstep = 400\n");
  done(train("run", 1, 20'000,
             async({"--set", "strategy.partition=equal", "--set", "checkpoint.enabled=false",
                    "--faults", "faults.toml"})));
  const Json found = report("run");
  ASSERT_EQ(found.at("recoveries").size(), 1u);
  const double lost = found.at("recoveries").at(0).at("work_lost_s");
  const double trained = 20'000 / found.at("samples_per_s").get<double>();
  EXPECT_GE(lost, 0);
  EXPECT_LT(lost, trained / 8);
}

// The weights of the second layer are more than a bucket, and those of the first come later.
TEST_F(WorkersApartTold, BucketsLeaveEarlyOnlyIfTheyAreTo) {
  write("mlp.toml", R"(
name = "wide"
[data]
source = "synthetic"
test_samples = 10
features = [20]
classes = 4
[model]
layers = [
  {type = "dense", units = 1100, activation = "relu"},
  {type = "dense", units = 1000, activation = "relu"},
  {type = "dense", units = 4},
]
[training]
batch = 40
)");
  for (const bool overlap : {true, false}) {
    const std::string run = fmt::format("{}", overlap);
    done(train(run, 1, 400,
               async({"--set", "strategy.fabric=tcp", "--set",
                      fmt::format("strategy.overlap={}", overlap)})));
    const Json times = report(run).at("worker_times");
    ASSERT_EQ(times.size(), 2u);
    for (const Json& worker : times) EXPECT_EQ(worker.at("hidden_s") > 0, overlap) << worker;
  }
}

// Tasks are more than there are workers, and updates of one gradient more than steps.
TEST_F(WorkersApartTold, TheStepOfTheRunGoesOnAfterAResume) {
  const Words tasks = {"--strategy",        "incremental", "--set",
                       "strategy.tasks=16", "--set",       "strategy.period=2"};
  for (const Words& way : {async(), tasks}) {
    const std::string run = way[1];
    SCOPED_TRACE(run);
    const uint64_t midway = 20 * kStepsPerEpoch;
    {
      Process process = start(train(run, kEndless, 1000, way));
      expect_true(run, await_step(run, midway));
      done({"stop", run});
      EXPECT_EQ(process.wait(), 75) << process.error();
    }
    for (const Words& next : {way, Words{"--strategy", "all_reduce"}}) {
      Process process = start(train(run, kEndless, 1000, joined(next, {"--resume"})));
      const Json status = await_step(run, 1);
      EXPECT_GE(status.at("step"), midway) << next[1];
      expect_true(run, status);
      done({"stop", run});
      EXPECT_EQ(process.wait(), 75) << process.error();
    }
  }
}

// While the chief computes for one of them, the other worker makes many updates.
TEST_F(WorkersApartTold, CheckpointsAreDueByTheUpdatesOfAll) {
  write("faults.toml", "[[fault]]\naction = \"slow\"\nworker = 0\nfactor = 100\n");
  done(train("run", 1, 4000,
             async({"--faults", "faults.toml", "--set", "checkpoint.every_steps=20", "--set",
                    "checkpoint.keep=1000"})));
  EXPECT_GE(checkpoints("run"), 5u) << "of about 200 updates, and one at the end";
}

// It has done its share at once, and the other one takes long for each of its 100 gradients.
TEST_F(WorkersApartTold, CheckpointsAreDueWhileTheChiefHasNothingToDo) {
  write("faults.toml", "[[fault]]\naction = \"slow\"\nworker = 1\nfactor = 1000\n");
  done(train("run", 1, 4000,
             async({"--faults", "faults.toml", "--set", "strategy.partition=equal", "--set",
                    "checkpoint.every_seconds=0.2", "--set", "checkpoint.keep=1000"})));
  EXPECT_GE(checkpoints("run"), 3u);
}

}  // namespace
}  // namespace starling
