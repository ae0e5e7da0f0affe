// `--record` and `starling replay`: what workers that train apart did is done again by one process,
// to the same bits, through losses, changes of workers, stops and resumes; and what is no such
// record is refused.
#include <thread>

#include "param/record_file.h"
#include "seeds.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class WorkersReplay : public WorkersTest {
 protected:
  static constexpr int kWorkers = 3, kEndless = 1'000'000;

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
    write_cnn_job();
  }

  static Words train(const std::string& job, const std::string& consistency, const Words& more = {},
                     int workers = kWorkers) {
    Words words = {"train",      job + ".toml",
                   "--strategy", "parameter_server",
                   "--workers",  fmt::format("{}", workers),
                   "--lanes",    "1",
                   "--set",      "strategy.consistency=" + consistency,
                   "--run-dir",  "run",
                   "--record"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // In its second step or later, if no other is said.
  void kill(int worker, const std::string& point, int step = 2) const {
    std::ofstream(folder_ / "faults.toml", std::ios::app)
        << fmt::format("[[fault]]\naction = \"kill\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                       worker, point, step);
  }

  // Two times, with nothing in common but the record.
  void expect_replayed(const std::string& run) const {
    for (const Words& more : {Words{"--lanes", "1"}, {"--lanes", "3", "--timing-seed", "77"}}) {
      Words words = {"replay", run, "--no-progress"};
      words.insert(words.end(), more.begin(), more.end());
      const Ended ended = done(words);
      EXPECT_THAT(ended.output, HasSubstr(same_bits(hash(run))));
      EXPECT_EQ(ended.error, "");
    }
    expect_nothing_left({});
  }
  static std::string same_bits(const std::string& hash) {
    return fmt::format("the run        {0}\nthis replay    {0}\nbits           the same\n", hash);
  }

  std::vector<RecordedStretch> record(const std::string& run) const {
    return RecordFile::read(folder_ / run / "record.txt");
  }
  // That a worker had at a time.
  size_t most_leases(const std::string& run) const {
    size_t most = 0;
    for (const RecordedStretch& stretch : record(run)) {
      std::map<int, size_t> leases;
      for (const Order& order : stretch.log) {
        if (order.kind == Order::Kind::kLend) most = std::max(most, ++leases[order.worker]);
        if (order.kind == Order::Kind::kDrop) --leases[order.worker];
        for (const Push& push : order.pushes)
          if (order.kind == Order::Kind::kApply) --leases[push.worker];
      }
    }
    return most;
  }
  void write_record(const std::string& run, const std::vector<RecordedStretch>& stretches) const {
    std::string text = record_header();
    for (const RecordedStretch& stretch : stretches) text += to_text(stretch);
    write(run + "/record.txt", text);
  }

  // In the middle of the run, wherever that is; it is saved.
  void stop_midway(const Words& words) const {
    Process process = start(words);
    ASSERT_TRUE(process.wait_for_line("epoch 2/")) << process.error();
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 75) << process.error();
  }
  Words epochs_and_one_more(const std::string& run) const {
    return {"--set",
            fmt::format("training.epochs={}", static_cast<int>(report(run).at("epochs")) + 2)};
  }
  static Words joined(const std::vector<Words>& parts) {
    Words all;
    for (const Words& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

// "ahead" is async, with leases that come while others are computed.
class WorkersReplayOf : public WorkersReplay,
                        public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  static Words train_as(const std::string& job, const std::string& way, const Words& more) {
    if (way != "ahead") return train(job, way, more);
    return train(job, "async", joined({{"--set", "strategy.ahead=2"}, more}));
  }
};

TEST_P(WorkersReplayOf, GivesTheSameBits) {
  const auto [job, way] = GetParam();
  done(train_as(job, way, {"--no-progress"}));
  expect_replayed("run");
  uint64_t updates = 0;
  for (const RecordedStretch& stretch : record("run")) updates = stretch.end_version();
  EXPECT_EQ(report("run").at("steps"), updates);
  EXPECT_EQ(most_leases("run") > 1, way == std::string("ahead"));
}

TEST_P(WorkersReplayOf, GivesTheSameBitsAfterALoss) {
  const auto [job, way] = GetParam();
  // Whoever is lent samples at the beginning of a stretch computes at least those.
  kill(1, "gradient");
  done(train_as(job, way,
                {"--no-progress", "--faults", "faults.toml", "--respawn", "--set",
                 "checkpoint.every_steps=5"}));
  EXPECT_EQ(lost_in("run"), 1u);
  expect_replayed("run");
}

std::string replay_name(const testing::TestParamInfo<std::tuple<const char*, const char*>>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, WorkersReplayOf,
                         testing::Combine(testing::Values("mlp", "cnn"),
                                          testing::Values("async", "ssp", "backup", "ahead")),
                         replay_name);

TEST_F(WorkersReplay, GoesThroughTheLossOfAChiefThatHasJustRecorded) {
  kill(0, "record");
  done(train("cnn", "ssp", {"--no-progress", "--faults", "faults.toml"}));
  EXPECT_EQ(lost_in("run"), 1u);
  EXPECT_EQ(record("run").front().averaged, (std::vector<int>{0, 1, 2})) << "it was still there";
  EXPECT_EQ(record("run").back().averaged, (std::vector<int>{1, 2}));
  expect_replayed("run");
}

TEST_F(WorkersReplay, GoesThroughTheLossOfServersAndWorkers) {
  kill(4, "evaluation", 0);
  kill(2, "step");
  done(train("cnn", "async",
             {"--no-progress", "--servers", "2", "--set", "strategy.fabric=tcp", "--faults",
              "faults.toml"}));
  EXPECT_EQ(lost_in("run"), 2u);
  expect_replayed("run");
}

TEST_F(WorkersReplay, GoesThroughKillsAndFreezes) {
  for (uint64_t seed = 0; seed < seed_count(2); ++seed) {
    SCOPED_TRACE(seed);
    const Words words =
        joined({train("cnn", seed % 2 == 0 ? "async" : "backup"),
                {"--no-progress", "--respawn", "--set", "strategy.heartbeat_limit=1", "--set",
                 "checkpoint.every_steps=5"}});
    // Two that are lost at the same time may take a slice of the state with them.
    const Ended ended = run(joined({words, {"--overwrite", "--faults", fmt::format("{}", seed)}}));
    if (ended.code != 0) done(joined({words, {"--resume"}}));
    expect_replayed("run");
  }
}

TEST_F(WorkersReplay, GradientsThatAreNotFiniteChangeNothing) {
  done(train(
      "mlp", "async",
      {"--no-progress", "--set", "non_finite=skip", "--set", "optimizer.learning_rate=1e30"}));
  EXPECT_THAT(read("run/record.txt"), HasSubstr("!"));
  expect_replayed("run");
}

TEST_F(WorkersReplay, GoesThroughStopsAndOtherNumbersOfWorkers) {
  stop_midway(train("cnn", "async", {"--set", fmt::format("training.epochs={}", kEndless)}));
  expect_replayed("run");
  // Another consistency, learning rate and end of the schedule: the record says what was when.
  const Words more = epochs_and_one_more("run");
  done(joined({train("cnn", "ssp",
                     {"--no-progress", "--resume", "--set", "optimizer.learning_rate=0.01", "--set",
                      "optimizer.schedule.name=cosine"},
                     2),
               more}));
  EXPECT_EQ(report("run").at("workers"), 2);
  EXPECT_GT(record("run").back().epoch, 0u);
  expect_replayed("run");
}

TEST_F(WorkersReplay, GoesThroughWorkersThatJoinAndLeave) {
  const auto try_out = [&](const char* job, const Words& more) {
    Process process = start(train(
        job, "async",
        joined({{"--overwrite", "--set", fmt::format("training.epochs={}", kEndless)}, more})));
    ASSERT_TRUE(process.wait_for_line("epoch 2/")) << process.error();
    std::thread reader([&] { process.wait(); });
    done({"join", "run"});
    done({"leave", "run", "--worker", "0"});
    done({"stop", "run"});
    reader.join();
    const std::string recoveries = to_text(report("run").at("recoveries"));
    EXPECT_THAT(recoveries, AllOf(HasSubstr("\"joined\":[3]"), HasSubstr("\"retired\":[0]")));
    expect_replayed("run");
  };
  try_out("mlp", {});
  // Statistics are of shards, and 12 are not divided by 3 workers as by 4.
  try_out("cnn", {"--set", "shards=12", "--set", "training.batch=48", "--set", "data.samples=130"});
}

TEST_F(WorkersReplay, HasNothingThatAResumeHasUndone) {
  const Words words =
      train("mlp", "async",
            {"--no-progress", "--set", "checkpoint.every_steps=4", "--set", "checkpoint.keep=100"});
  done(words);
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run/checkpoints"))
    checkpoints.push_back(entry.path());
  std::sort(checkpoints.begin(), checkpoints.end());
  ASSERT_GE(checkpoints.size(), 2u);
  for (size_t i = 1; i < checkpoints.size(); ++i) std::filesystem::remove_all(checkpoints[i]);
  // As if it had died while it wrote.
  write("run/record.txt", read("run/record.txt") + "stretch 1 4");
  done(joined({words, {"--resume"}}));
  expect_replayed("run");
}

TEST_F(WorkersReplay, EndsWithTheWeightsThatEarlyStoppingBringsBack) {
  done(train("mlp", "async",
             {"--no-progress", "--set", "training.epochs=40", "--set",
              "training.early_stopping.value=val_loss", "--set",
              "training.early_stopping.patience=1", "--set", "optimizer.learning_rate=0.5"}));
  EXPECT_EQ(report("run").at("stopped_by"), "early_stopping");
  expect_replayed("run");
}

TEST_F(WorkersReplay, FindsTwoUpdatesThatWereExchanged) {
  done(train("mlp", "async", {"--no-progress"}));
  std::vector<RecordedStretch> stretches = record("run");
  // Of two updates that follow one another, with nothing lent between them.
  bool exchanged = false;
  std::vector<Order>& log = stretches.back().log;
  for (size_t i = 0; i + 1 < log.size() && !exchanged; ++i) {
    exchanged = log[i].kind == Order::Kind::kApply && log[i + 1].kind == Order::Kind::kApply;
    if (exchanged) std::swap(log[i], log[i + 1]);
  }
  ASSERT_TRUE(exchanged) << "an epoch ends so: nothing is left to lend";
  write_record("run", stretches);
  const Ended ended = run({"replay", "run", "--no-progress"});
  EXPECT_EQ(ended.code, 1) << ended.error;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("the run        " + hash("run")),
                                  HasSubstr("bits           DIFFERENT")));
  EXPECT_THAT(ended.output, Not(HasSubstr("this replay    " + hash("run"))));
}

TEST_F(WorkersReplay, RefusesWhatIsNotTheRecordOfTheRun) {
  done(train("mlp", "async", {"--no-progress"}));
  const std::string whole = read("run/record.txt");
  const auto error = [&](const std::string& text) {
    write("run/record.txt", text);
    return refused(2, {"replay", "run"});
  };
  EXPECT_THAT(error(whole.substr(0, whole.size() / 2)), HasSubstr("is damaged in line"));
  EXPECT_THAT(error(whole.substr(0, whole.rfind("stretch "))), HasSubstr("but the run has made"));
  EXPECT_THAT(error(""), HasSubstr("is not a record"));
  std::string changed = whole;
  changed[changed.find("lend 1 ") + 5] = '2';
  EXPECT_THAT(error(changed), HasSubstr("is damaged in line"));
  std::vector<RecordedStretch> other = (write("run/record.txt", whole), record("run"));
  for (RecordedStretch& stretch : other) stretch.epoch += 1;
  write_record("run", other);
  EXPECT_THAT(refused(2, {"replay", "run"}), HasSubstr("is not of this job"));
  write("run/record.txt", whole);
  write("run/report.json", "{}");
  EXPECT_THAT(refused(2, {"replay", "run"}), HasSubstr("weights_sha256"));
  std::filesystem::remove(folder_ / "run/report.json");
  EXPECT_THAT(refused(2, {"replay", "run"}), HasSubstr("has not come to an end"));
  std::filesystem::remove(folder_ / "run/record.txt");
  EXPECT_THAT(refused(2, {"replay", "run"}), HasSubstr("was not recorded"));
  EXPECT_THAT(refused(2, {"replay", "nowhere"}), HasSubstr("is not the folder of a run"));
}

TEST_F(WorkersReplay, ARunThatWentOnWithoutARecordIsNotReplayed) {
  const Words words = train("mlp", "async", {"--no-progress", "--set", "training.epochs=1"});
  done(words);
  Words more = joined({words, {"--resume", "--set", "training.epochs=2"}});
  std::erase(more, "--record");
  EXPECT_THAT(done(more).error, HasSubstr("can't be replayed any more"));
  EXPECT_THAT(refused(2, {"replay", "run"}), HasSubstr("was not recorded"));
  EXPECT_TRUE(exists("run/superseded-record.txt"));
  EXPECT_THAT(refused(2, joined({words, {"--resume", "--set", "training.epochs=3"}})),
              HasSubstr("updates that were not recorded"));
  expect_nothing_left({});
}

TEST_F(WorkersReplay, WhatHasTheSameBitsAnywayIsNotRecorded) {
  for (const Words& more :
       {Words{}, {"--workers", "2"}, {"--workers", "2", "--strategy", "parameter_server"}}) {
    const std::string error = refused(2, joined({{"train", "mlp.toml", "--record"}, more}));
    EXPECT_THAT(error, HasSubstr("this strategy gives the same bits anyway"));
    expect_told_once(error);
  }
  EXPECT_FALSE(exists("runs"));
}

}  // namespace
}  // namespace starling
