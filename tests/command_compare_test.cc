// `starling compare` as a process: real trials, real signals.
#include <set>

#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class CompareTest : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    write("job.toml", R"(
name = "small"
shards = 4
[data]
source = "synthetic"
samples = 400
test_samples = 100
features = [8]
classes = 4
[[model.layers]]
type = "dense"
units = 4
[training]
epochs = 3
batch = 20
)");
  }

  // Two strategies and two seeds, with more arguments.
  static std::vector<std::string> arguments(const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"compare",      "job.toml",          "--out",   "out",
                                    "--strategies", "single,all_reduce", "--seeds", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Json result() const { return parse_json(read("out/compare.json")); }
  std::filesystem::file_time_type written(const std::string& name) const {
    return std::filesystem::last_write_time(folder_ / name);
  }

  // Processes that work on this test's comparison, but for the one.
  std::vector<pid_t> trial_processes(pid_t without) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      if (process <= 0 || process == without || process == ::getpid()) continue;
      std::ostringstream words;
      words << std::ifstream(entry.path() / "cmdline").rdbuf();
      std::error_code gone;
      const auto place = std::filesystem::read_symlink(entry.path() / "cwd", gone);
      if (!gone && place == folder_ && words.str().find("out/runs") != std::string::npos)
        found.push_back(process);
    }
    return found;
  }

  // Once trials are under way.
  std::vector<Watched> watch_trials(const Process& comparison) const {
    const auto end = Process::Clock::now() + Process::kDeadline;
    std::vector<pid_t> found;
    while (found.empty() && Process::Clock::now() < end) found = trial_processes(comparison.id());
    EXPECT_FALSE(found.empty()) << "no trial was started";
    std::vector<Watched> watched;
    for (const pid_t process : found) watched.emplace_back(process);
    return watched;
  }
};

TEST_F(CompareTest, WritesResultsAndSaysWhatIsBest) {
  const Ended ended = done(arguments({"--slow-worker", "none,2x"}));
  EXPECT_THAT(ended.error, AllOf(HasSubstr("[1/6] 1 process · single · seed 1 … "),
                                 HasSubstr("[3/6] 2 workers, the last 2x slower · all_reduce"),
                                 HasSubstr(" left\n")));
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("goal "), HasSubstr("  use "), HasSubstr("out/compare.html")));
  const Json json = result();
  EXPECT_EQ(json.at("trials").at("done"), 6);
  ASSERT_EQ(json.at("conditions").size(), 2u);
  for (const Json& condition : json.at("conditions")) {
    ASSERT_EQ(condition.at("strategies").size(), 2u);
    const Json& single = condition.at("strategies").at(0);
    const Json& other = condition.at("strategies").at(1);
    // The same bits: so accuracies are the same, seed by seed and epoch by epoch.
    EXPECT_EQ(single.at("accuracy"), other.at("accuracy"));
    for (const Json& seed : other.at("seeds")) {
      ASSERT_EQ(seed.at("points").size(), 3u);
      EXPECT_EQ(seed.at("points").at(2).at("samples"), 1200);
      EXPECT_GT(seed.at("points").at(2).at("bytes"), 0);
    }
    EXPECT_EQ(single.at("seeds").at(0).at("points").at(2).at("bytes"), 0);
    EXPECT_TRUE(condition.at("recommendation").at("strategy").is_string());
  }
  EXPECT_THAT(read("out/compare.html"), AllOf(HasSubstr("<svg"), HasSubstr("2x slower")));
  EXPECT_THAT(read("out/runs/workers-2-slow-2x/all_reduce/seed-1.faults.toml"),
              HasSubstr("worker = 1"));
  EXPECT_EQ(report("out/runs/workers-2/all_reduce/seed-2").at("seed"), 2);
}

TEST_F(CompareTest, CalledAgainItGoesOnAndCanBeExtended) {
  done(arguments());
  const auto before = written("out/runs/single/seed-1/report.json");
  const Ended again = done(arguments());
  EXPECT_THAT(again.error, AllOf(HasSubstr("4 of 4 trials are done"), Not(HasSubstr("[1/4]"))));
  const Ended more =
      done({"compare", "job.toml", "--out", "out", "--strategies",
            "single,all_reduce,local_sgd:period=4", "--seeds", "3", "--goal", "0.3"});
  EXPECT_THAT(more.error, AllOf(ContainsRegex("4 of 9 trials are done   about .* left\n"),
                                HasSubstr("[3/9]"), Not(HasSubstr("[1/9]"))));
  EXPECT_EQ(written("out/runs/single/seed-1/report.json"), before);
  EXPECT_EQ(result().at("trials").at("done"), 9);
  EXPECT_EQ(result().at("goal").at("accuracy"), 0.3);
}

TEST_F(CompareTest, InterruptedItEndsAllAndGoesOnLater) {
  const std::vector<std::string> longer = arguments({"--epochs", "150"});
  Process comparison = start(longer);
  ASSERT_TRUE(comparison.wait_for_line("[1/4]")) << comparison.error();
  const std::vector<Watched> trials = watch_trials(comparison);
  comparison.signal(SIGTERM);
  EXPECT_EQ(comparison.wait(), 75) << comparison.error();
  EXPECT_THAT(comparison.error(),
              AllOf(HasSubstr("of 4 trials are done. Go on with:"), HasSubstr(" … stopped\n"),
                    HasSubstr("starling compare job.toml --out out --strategies")));
  for (const Watched& trial : trials) EXPECT_TRUE(trial.ended_within(kSoon));
  EXPECT_TRUE(trial_processes(0).empty());
  EXPECT_LT(result().at("trials").at("done"), 4) << "what is known so far is there";
  EXPECT_GE(result().at("trials").at("done"), 1);

  const auto before = written("out/runs/single/seed-1/report.json");
  const Ended rest = done(longer);
  EXPECT_THAT(rest.error, AllOf(HasSubstr("going on in out"), HasSubstr("[4/4]")));
  EXPECT_EQ(written("out/runs/single/seed-1/report.json"), before);
  EXPECT_EQ(result().at("trials").at("done"), 4);
}

TEST_F(CompareTest, KilledItLeavesNothingRunning) {
  Process comparison = start(arguments({"--epochs", "100000"}));
  const std::vector<Watched> trials = watch_trials(comparison);
  comparison.signal(SIGKILL);
  EXPECT_EQ(comparison.wait(), 128 + SIGKILL);
  for (const Watched& trial : trials) EXPECT_TRUE(trial.ended_within(kSoon));
}

TEST_F(CompareTest, ATimeIsABudget) {
  done(arguments({"--time", "0.5s"}));
  const Json found = result();
  for (const Json& strategy : found.at("conditions").at(0).at("strategies")) {
    for (const Json& seed : strategy.at("seeds")) EXPECT_LE(seed.at("train_s"), 0.501);
  }
  EXPECT_EQ(report("out/runs/single/seed-1").at("stopped_by"), "time_limit");
}

TEST_F(CompareTest, AFolderOfSomethingElseIsLeftAlone) {
  done(arguments());
  EXPECT_THAT(refused(2, arguments({"--epochs", "2"})),
              AllOf(HasSubstr("another job, budget"), HasSubstr("--overwrite")));
  EXPECT_TRUE(exists("out/runs/single/seed-1/report.json"));
  done(arguments({"--epochs", "2", "--overwrite"}));
  EXPECT_EQ(report("out/runs/single/seed-1").at("epochs"), 2);

  std::filesystem::create_directories(folder_ / "mine");
  write("mine/thesis.txt", "years of work");
  for (const char* flag : {"--no-progress", "--overwrite"})
    EXPECT_THAT(refused(2, {"compare", "job.toml", "--out", "mine", flag}),
                HasSubstr("something else"));
  EXPECT_EQ(read("mine/thesis.txt"), "years of work");
}

TEST_F(CompareTest, TwoAtOnceInOneFolderAreRefused) {
  Process first = start(arguments({"--epochs", "100000"}));
  watch_trials(first);
  EXPECT_THAT(refused(2, arguments({"--epochs", "100000"})), HasSubstr("under way"));
  first.signal(SIGINT);
  EXPECT_EQ(first.wait(), 75);
}

TEST_F(CompareTest, TrialsThatFailAreToldAndTriedAgain) {
  const std::vector<std::string> failing =
      arguments({"--set", "optimizer.name=sgd", "--set", "optimizer.learning_rate=1e30", "--set",
                 "data.noise=1000000"});
  const std::string error = refused(1, failing);
  EXPECT_THAT(error, AllOf(HasSubstr("[4/4]"), ContainsRegex("failed: .*   about .* left\n"),
                           HasSubstr("4 of 4 trials")));
  EXPECT_EQ(result().at("trials").at("failed"), 4);
  EXPECT_THAT(read("out/compare.html"), HasSubstr("seed 1: "));
  EXPECT_THAT(refused(1, failing), HasSubstr("[1/4]"));
}

TEST_F(CompareTest, WhatATrialRefusesEndsTheComparison) {
  const std::string error = refused(2, arguments({"--set", "model.input=[9]"}));
  EXPECT_THAT(error, AllOf(HasSubstr("a trial was refused: "), HasSubstr("the model's input is"),
                           HasSubstr("seed-1.log")));
  EXPECT_THAT(refused(2, arguments({"--workers", "8"})), HasSubstr("a batch has 4 shards"));
  EXPECT_THAT(refused(2, arguments({"--link-delay", "11s"})), HasSubstr("at most 10s"));
  EXPECT_THAT(refused(2, {"compare", "nothing.toml"}), HasSubstr("nothing.toml"));
  EXPECT_THAT(refused(2, {"compare", "job.toml", "--seeds", "0"}), HasSubstr("--seeds"));
  EXPECT_THAT(refused(2, {"compare", "job.toml", "--time", "soon"}), HasSubstr("90s"));
  EXPECT_THAT(refused(2, {"compare", "job.toml", "--epochs", "3", "--samples", "9"}),
              HasSubstr("--"));
}

}  // namespace
}  // namespace starling
