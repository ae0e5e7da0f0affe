// `parameter_server` with synchronous steps: the bits are those of one worker, wherever the servers
// are, and through the loss of workers and servers. Real processes, as a user starts them.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class WorkersServers : public WorkersTest {
 protected:
  static constexpr int kWorkers = 2;  // 0 and 1; the servers are 2, 3, …

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  static Words served(const std::string& fabric, int servers, int workers = kWorkers) {
    return {"--strategy", "parameter_server",         "--workers", fmt::format("{}", workers),
            "--servers",  fmt::format("{}", servers), "--lanes",   "1",
            "--set",      "strategy.fabric=" + fabric};
  }
  // Of several blocks, so that every server has some.
  static Words train(const std::string& job, const std::string& run, const Words& more) {
    Words words = {"train", job, "--no-progress", "--run-dir", run};
    if (job == "mlp.toml") words.insert(words.end(), {"--set", "model.layers.0.units=1000"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  void expect_as_alone(const std::string& run) const {
    const Json alone = report("alone"), other = report(run);
    for (const char* key : {"weights_sha256", "train_loss", "test_loss", "test_accuracy", "steps"})
      EXPECT_EQ(to_text(other.at(key)), to_text(alone.at(key))) << key;
    EXPECT_EQ(other.at("strategy"), "parameter_server");
    for (const char* file : {"/model.safetensors", "/ledger.jsonl"})
      EXPECT_EQ(read(run + file), read(std::string("alone") + file)) << file;
    expect_nothing_left({});
  }

  struct Kill {
    int worker;
    const char* point;
  };
  void expect_survived(const std::string& fabric, int servers, const std::vector<Kill>& kills,
                       const Words& more = {}) const {
    std::string run = fmt::format("{}{}_{}", fabric, servers, fmt::join(more, "")), faults;
    for (const Kill& kill : kills) {
      run += fmt::format("_{}{}", kill.point, kill.worker);
      faults += fmt::format("[[fault]]\naction = \"kill\"\nworker = {}\npoint = \"{}\"\nstep = 5\n",
                            kill.worker, kill.point);
    }
    SCOPED_TRACE(run);
    write("faults.toml", faults);
    Words words = served(fabric, servers);
    words.insert(words.end(), {"--faults", "faults.toml"});
    words.insert(words.end(), more.begin(), more.end());
    done(train("mlp.toml", run, words));
    expect_as_alone(run);
    EXPECT_EQ(lost_in(run), kills.size());
  }
};

TEST_F(WorkersServers, TheBitsAreThoseOfOneWorker) {
  write_cnn_job();
  for (const std::string job : {"mlp.toml", "cnn.toml"}) {
    const Words settings = job == "cnn.toml" ? cnn_settings() : Words{};
    Words alone = settings;
    alone.push_back("--overwrite");
    done(train(job, "alone", alone));
    for (const char* fabric : {"shm", "tcp"}) {
      for (const int servers : {0, 1, 2, 3}) {
        const std::string run = fmt::format("{}{}{}", job, fabric, servers);
        SCOPED_TRACE(run);
        Words words = settings;
        for (const std::string& word : served(fabric, servers)) words.push_back(word);
        done(train(job, run, words));
        expect_as_alone(run);
        EXPECT_EQ(report(run).at("workers"), kWorkers);
        EXPECT_EQ(report(run).at("servers"), servers);
        const Json times = report(run).at("worker_times");
        EXPECT_EQ(times.size(), static_cast<size_t>(kWorkers + servers));
        for (const Json& worker : times)
          EXPECT_EQ(worker.at("shards") > 0, worker.at("worker") < kWorkers) << worker;
      }
    }
  }
}

TEST_F(WorkersServers, OnlyServersKeepOptimizerState) {
  done(train("mlp.toml", "run", served("tcp", 2)));
  const Json bytes = report("run").at("optimizer_bytes");
  EXPECT_EQ(bytes.at(0), 0);
  EXPECT_EQ(bytes.at(1), 0);
  EXPECT_EQ(bytes.at(2), bytes.at(3)) << "each has its slice and the copy of the other";
  EXPECT_GT(bytes.at(2), 0);
}

TEST_F(WorkersServers, AServerMayBeLostAtAnyPoint) {
  done(train("mlp.toml", "alone", {}));
  for (const char* fabric : {"shm", "tcp"}) {
    for (const char* point :
         {"step", "gradient", "announced", "updated", "committed", "evaluation"})
      expect_survived(fabric, 2, {{3, point}});
  }
}

TEST_F(WorkersServers, TheOnlyServerMayBeLost) {
  done(train("mlp.toml", "alone", {}));
  for (const char* fabric : {"shm", "tcp"}) {
    for (const char* point : {"gradient", "updated"}) {
      expect_survived(fabric, 1, {{2, point}});
      expect_survived(fabric, 1, {{2, point}}, {"--respawn"});
    }
  }
}

TEST_F(WorkersServers, WorkersMayBeLostAndTheServersGoOn) {
  done(train("mlp.toml", "alone", {}));
  for (const char* fabric : {"shm", "tcp"}) {
    expect_survived(fabric, 2, {{1, "gradient"}});
    expect_survived(fabric, 2, {{0, "gradient"}, {1, "announced"}});
    expect_survived(fabric, 2, {{0, "announced"}, {2, "gradient"}});
  }
}

TEST_F(WorkersServers, WhatIsLostIsReplacedByItsKind) {
  Process process = start(
      train("mlp.toml", "run",
            {"--strategy", "parameter_server", "--workers", "2", "--servers", "1", "--lanes", "1",
             "--respawn", "--set", "training.epochs=1000000", "--set", "data.samples=5200"}));
  // Until so many take part, with that text in a line of the status.
  const auto await = [&](const std::string& regex) {
    const auto end = Process::Clock::now() + kSoon;
    std::string last;
    while (Process::Clock::now() < end) {
      last = run({"status", "run"}).output;
      if (testing::Matches(ContainsRegex(regex))(last)) return;
    }
    ADD_FAILURE() << "never " << regex << " in\n" << last;
  };
  await("2 +working .* server");
  auto workers = wait_for_workers(process, 3);
  workers.at(2).signal(SIGKILL);
  await("3 +working .* server");
  workers.at(0).signal(SIGKILL);
  await("4 +working .* ago\n");
  EXPECT_THAT(done({"leave", "run", "--worker", "1"}).output,
              HasSubstr("the run has 1 worker now"));
  EXPECT_THAT(done({"join", "run"}).output, HasSubstr("the run has 2 workers now"));
  EXPECT_THAT(done({"leave", "run", "--worker", "3"}).output, HasSubstr("the run has 2 workers"));
  done({"stop", "run"});
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_EQ(report("run").at("workers"), 2);
  EXPECT_EQ(report("run").at("servers"), 0) << "the workers serve themselves";
  expect_nothing_left(workers);
}

TEST_F(WorkersServers, StrategiesWithoutServersRefuseThem) {
  EXPECT_THAT(refused(2, {"train", "mlp.toml", "--workers", "2", "--servers", "1"}),
              AllOf(HasSubstr("has no servers"), HasSubstr("--strategy parameter_server")));
  EXPECT_THAT(refused(2, train("mlp.toml", "run", served("shm", 65))),
              AllOf(HasSubstr("strategy.servers"), HasSubstr("64")));
}

}  // namespace
}  // namespace starling
