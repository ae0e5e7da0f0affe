// What people ask of a run that is under way: status, join, leave, stop; and runs that wait for
// workers. Real processes; the bits are those of a run that nobody asked anything of.
#include <stdlib.h>

#include "fabric/tcp/socket.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class WorkersControl : public WorkersTest {
 protected:
  static constexpr int kEndless = 1'000'000, kShort = 6;
  static constexpr uint64_t kMidway = 9;
  static constexpr int kStepsPerEpoch = 130;
  const Words kManySteps = {"--set", "data.samples=5200"};

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
    write_fault("kill", 1, "gradient", kMidway);
  }

  static std::string fault(const std::string& action, int worker, const std::string& point,
                           uint64_t step) {
    return fmt::format("[[fault]]\naction = \"{}\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                       action, worker, point, step);
  }
  // The only one.
  void write_fault(const std::string& action, int worker, const std::string& point,
                   uint64_t step) const {
    write("faults.toml", fault(action, worker, point, step));
  }

  static Words train(const std::string& run, int epochs, const Words& more = {}) {
    Words words = {"train",        "mlp.toml",
                   "--run-dir",    run,
                   "--set",        fmt::format("training.epochs={}", epochs),
                   "--no-progress"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Through shm, over tcp, or "sharded" over it with so many replicas.
  static Words of(int workers, const std::string& way, Words more = {}) {
    more.insert(more.end(), {"--workers", fmt::format("{}", workers), "--lanes", "1", "--set",
                             fmt::format("strategy.fabric={}", way == "shm" ? "shm" : "tcp")});
    if (way.starts_with("sharded")) {
      more.insert(more.end(), {"--strategy", "sharded", "--set",
                               fmt::format("strategy.replicas={}", way.back())});
    }
    return more;
  }

  // With these faults, for which nobody is killed by the launcher.
  Words patient(int workers, const std::string& way) const {
    return of(
        workers, way,
        joined(kManySteps, {"--faults", "faults.toml", "--set", "strategy.heartbeat_limit=600",
                            "--set", "strategy.progress_limit=600"}));
  }

  // Longer than what counts as one signal that came twice.
  static constexpr std::chrono::milliseconds kHurry{400};

  // 130 rows of zeros.
  static std::string npy_of(int columns) {
    const std::string shape = columns == 1 ? "(130,)" : fmt::format("(130, {})", columns);
    std::string header =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape);
    header.resize(117, ' ');
    const std::string magic("\x93NUMPY\x01\x00\x76\x00", 10);
    return magic + header + "\n" + std::string(static_cast<size_t>(130 * columns) * 4, '\0');
  }

  // Of the run, once it is in that state and has come to a step.
  Json await(const std::string& run, const std::string& state) const {
    const auto end = Process::Clock::now() + kSoon;
    while (Process::Clock::now() < end) {
      const Ended ended = this->run({"status", run, "--json"});
      if (ended.code != 0) continue;
      Json status = parse_json(ended.output);
      if (status.at("state") == state && status.at("step") > 0) return status;
    }
    ADD_FAILURE() << run << " never was " << state;
    return {};
  }

  // What the run reports.
  Json stop(const std::string& run, Process& process) const {
    done({"stop", run});
    EXPECT_EQ(process.wait(), 75) << process.error();
    return report(run);
  }

  // Lets the run that was stopped end with the epoch, and compares it with one that was not.
  void expect_same_at_its_end(const std::string& run) const {
    const int epochs = report(run).at("steps").get<int>() / kStepsPerEpoch + 1;
    Words settings = kManySteps;
    const std::string alone = run + "_alone";
    done(train(alone, epochs, settings));
    settings.push_back("--resume");
    done(train(run, epochs, settings));
    expect_same(run, alone);
  }

  void expect_same(const std::string& run, const std::string& alone) const {
    EXPECT_EQ(hash(run), hash(alone));
    EXPECT_EQ(read(run + "/ledger.jsonl"), read(alone + "/ledger.jsonl"));
    EXPECT_FALSE(exists(run + "/control"));
    expect_nothing_left({});
  }
};

TEST_F(WorkersControl, WorkersJoinAndLeaveUnderLoad) {
  for (const char* fabric : {"shm", "tcp", "sharded0", "sharded1"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, kEndless, of(2, fabric, kManySteps)));
    const Json before = await(fabric, "running");
    EXPECT_EQ(before.at("workers").size(), 2u);
    EXPECT_EQ(before.at("steps"), uint64_t{kStepsPerEpoch} * kEndless);
    EXPECT_THAT(done({"join", fabric}).output, HasSubstr("worker 2 takes part: the run has 3"));
    EXPECT_THAT(done({"join", fabric}).output, HasSubstr("worker 3 takes part: the run has 4"));
    // The chief too.
    EXPECT_THAT(done({"leave", fabric, "--worker", "0"}).output,
                HasSubstr("worker 0 has left: the run has 3"));
    EXPECT_THAT(done({"leave", fabric, "--worker", "2"}).output,
                HasSubstr("worker 2 has left: the run has 2"));
    EXPECT_THAT(
        done({"status", fabric}).output,
        AllOf(HasSubstr("workers   2"), ContainsRegex("0 +left"), ContainsRegex("3 +working")));
    EXPECT_EQ(stop(fabric, process).at("workers"), 2);
    EXPECT_THAT(read(std::string(fabric) + "/log.txt"),
                AllOf(HasSubstr("worker 1: worker 3 joined; workers 0, 1, 2, 3 go on"),
                      HasSubstr("worker 3: worker 0 left; workers 1, 2, 3 go on"),
                      HasSubstr("worker 1: worker 2 left; workers 1, 3 go on")));
    expect_same_at_its_end(fabric);
  }
}

TEST_F(WorkersControl, OneWorkerThatOthersMayJoin) {
  Words words = of(1, "shm", kManySteps);
  words.insert(words.end(), {"--strategy", "all_reduce"});
  Process process = start(train("run", kEndless, words));
  await("run", "running");
  EXPECT_THAT(done({"join", "run"}).output, HasSubstr("worker 1 takes part: the run has 2"));
  EXPECT_EQ(stop("run", process).at("workers"), 2);
  expect_same_at_its_end("run");
}

// The chief waits for as long as its reader likes; that is no reason to kill it, and the next chief
// after it.
TEST_F(WorkersControl, WhatNobodyReadsCostsNobody) {
  constexpr double kLimit = 1;  // the least that there may be
  constexpr int kEpochs = 300;  // whose lines the pipe does not hold
  Words words = train("run", kEpochs, of(2, "shm", {"--set", "strategy.progress_limit=1"}));
  std::erase(words, "--no-progress");
  Process process = start(words);
  const auto seconds = [&] { return await("run", "running").at("seconds").get<double>(); };
  for (const double begin = seconds(); seconds() < begin + 3 * kLimit;) {
    ASSERT_FALSE(HasFailure());
    const Json workers = await("run", "running").at("workers");
    for (const Json& worker : workers) ASSERT_EQ(worker.at("state"), "working") << worker;
  }
  EXPECT_EQ(process.wait(), 0) << process.error();
  EXPECT_THAT(process.error(), HasSubstr(fmt::format("epoch {}/{}", kEpochs, kEpochs)));
  EXPECT_EQ(report("run").at("workers"), 2);
  EXPECT_EQ(lost_in("run"), 0u);
}

// The run goes on to its end, and shows then what it has not shown.
TEST_F(WorkersControl, APausedTerminalIsWaitedForAtTheEndAlone) {
  const Socket terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  ASSERT_TRUE(grantpt(terminal.fd()) == 0 && unlockpt(terminal.fd()) == 0);
  const std::string path = ptsname(terminal.fd());
  const Socket full(open(path.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  while (::write(full.fd(), "x", 1) == 1) continue;  // nobody reads
  Words words = {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>" + path, STARLING_COMMAND};
  for (const std::string& word : train("run", 6, of(2, "shm"))) {
    if (word != "--no-progress") words.push_back(word);
  }
  Process process(words, {.folder = folder_.string()});
  const auto end = Process::Clock::now() + kSoon;
  while (!exists("run/report.json") && Process::Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(report("run").at("workers"), 2);

  std::string shown;
  while (shown.find("epoch 6/6") == std::string::npos) {  // it is read from now on
    pollfd polled{terminal.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 20'000), 1) << shown;
    char text[4096];
    const ssize_t bytes = ::read(terminal.fd(), text, sizeof text);
    ASSERT_GT(bytes, 0);
    shown.append(text, static_cast<size_t>(bytes));
  }
  for (int epoch = 1; epoch <= 6; ++epoch)
    EXPECT_EQ(count(shown, fmt::format("epoch {}/6", epoch)), 1);
  EXPECT_EQ(process.wait(), 0);
}

// Workers read job and data by themselves. What is wrong with them now does no harm to those who
// have read them already.
TEST_F(WorkersControl, WhoCanNotJoinDoesNoHarm) {
  for (const char* file : {"x.npy", "y.npy"}) write(file, npy_of(file[0] == 'x' ? 20 : 1));
  const std::string job = read("mlp.toml");
  const std::string of_files =
      std::string(job).replace(job.find("source = "), job.find("[[model") - job.find("source = "),
                               "source = \"npy\"\ntrain_features = \"x.npy\"\n"
                               "train_labels = \"y.npy\"\nvalidation_split = 0.1\n");
  write("mlp.toml", of_files);
  Process process = start(train("run", kEndless, of(2, "shm")));
  await("run", "running");
  write("mlp.toml", of_files + "\n# not the same words, but the same job\n");
  done({"join", "run"});
  std::filesystem::remove(folder_ / "x.npy");
  EXPECT_THAT(refused(1, {"join", "run"}), HasSubstr("worker 3"));
  write("mlp.toml", "seed = 7\n" + of_files);
  EXPECT_THAT(refused(2, {"join", "run"}), HasSubstr("mlp.toml has changed since the run began"));
  write("mlp.toml", "seed =");
  EXPECT_THAT(refused(2, {"join", "run"}), HasSubstr("mlp.toml:1"));
  EXPECT_EQ(stop("run", process).at("workers"), 3);
  EXPECT_THAT(process.error(), AllOf(HasSubstr("note: worker 3 did not join, the others go on: "),
                                     HasSubstr("x.npy")));
  expect_nothing_left({});
}

// Who is told twice to stop ends at once and saves nothing. A worker that is frozen meanwhile holds
// the others up.
TEST_F(WorkersControl, StoppingTwiceIsStopping) {
  Process process =
      start(train("run", kEndless, of(2, "shm", {"--set", "strategy.heartbeat_limit=600"})));
  await("run", "running");
  const std::map<int, Watched> workers = wait_for_workers(process, 2);
  workers.at(1).signal(SIGSTOP);
  Process once = start({"stop", "run"});
  EXPECT_FALSE(workers.at(0).ended_within(kHurry)) << "it waits for the other";
  Process twice = start({"stop", "run"});
  EXPECT_FALSE(workers.at(0).ended_within(kHurry));
  workers.at(1).signal(SIGCONT);
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_EQ(once.wait(), 0) << once.error();
  EXPECT_EQ(twice.wait(), 0) << twice.error();
  EXPECT_TRUE(
      exists(fmt::format("run/checkpoints/step-{:08}", report("run").at("steps").get<int>())));
}

// It is still preparing when the others have saved and ended: nobody is left who could let it in.
TEST_F(WorkersControl, WhoIsToJoinDoesNotHoldUpAStop) {
  write_fault("hang", 2, "start", 0);
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, kEndless, patient(2, fabric)));
    await(fabric, "running");
    Process join = start({"join", fabric});
    const auto workers = wait_for_workers(process, 3);
    EXPECT_EQ(stop(fabric, process).at("workers"), 2);
    EXPECT_THAT(process.error(), Not(ContainsRegex("error:|did not join")));
    EXPECT_NE(join.wait(), 0) << join.output();
    expect_all_ended(workers);
    expect_same_at_its_end(fabric);
  }
}

TEST_F(WorkersControl, WhoDiesBeforeItJoinsDoesNotDisturbAStop) {
  write_fault("hang", 2, "start", 0);
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process = start(train(fabric, kEndless, patient(2, fabric)));
    await(fabric, "running");
    Process join = start({"join", fabric});
    const auto workers = wait_for_workers(process, 3);
    ASSERT_EQ(workers.size(), 3u);
    workers.at(1).signal(SIGSTOP);  // the other can't end without it
    Process stop = start({"stop", fabric});
    await(fabric, "stopping");
    workers.at(2).signal(SIGKILL);
    EXPECT_TRUE(
        process.wait_for_line("worker 2 did not join, the others go on: it was ended by "
                              "signal 9"))
        << process.error();
    workers.at(1).signal(SIGCONT);
    EXPECT_EQ(process.wait(), 75) << process.error();
    EXPECT_EQ(stop.wait(), 0) << stop.error();
    EXPECT_NE(join.wait(), 0) << join.output();
    expect_all_ended(workers);
    expect_same_at_its_end(fabric);
  }
}

// One is lost in a step that the others can't end without it; or the chief is in the next one,
// which is the last, or while it saves, or before it reports. None is replaced: the run is about to
// end.
TEST_F(WorkersControl, ALossWhileARunStopsIsSurvived) {
  for (const char* fabric : {"shm", "tcp", "sharded1"}) {
    for (const std::string lost_at :
         {"gradient", "announced", "updated", "checkpoint", "results"}) {
      const std::string run = fmt::format("{}_{}", fabric, lost_at);
      SCOPED_TRACE(run);
      write_fault("freeze", 1, "gradient", kMidway);
      if (lost_at != "gradient")
        write("faults.toml", read("faults.toml") + fault("kill", 0, lost_at, kMidway + 1));
      Words words = patient(3, fabric);
      words.push_back("--respawn");
      Process process = start(train(run, kEndless, words));
      const auto workers = wait_for_workers(process, 3);
      ASSERT_EQ(workers.size(), 3u);
      ASSERT_TRUE(workers.at(1).frozen_within(kSoon));
      await(run, "running");
      Process stop = start({"stop", run});
      await(run, "stopping");
      workers.at(1).signal(lost_at == "gradient" ? SIGKILL : SIGCONT);
      EXPECT_EQ(process.wait(), 75) << process.error();
      EXPECT_EQ(stop.wait(), 0) << stop.error();
      EXPECT_THAT(process.error(), AllOf(ContainsRegex("worker [01] was lost: it was ended by"),
                                         HasSubstr("a checkpoint is saved. Go on with:"),
                                         Not(HasSubstr("worker 3"))));
      EXPECT_EQ(lost_in(run), 1u);
      EXPECT_EQ(report(run).at("workers"), 2);
      EXPECT_TRUE(exists(
          fmt::format("{}/checkpoints/step-{:08}", run, report(run).at("steps").get<int>())));
      expect_all_ended(workers);
      expect_same_at_its_end(run);
    }
  }
}

// The only one that has the state is lost before it has given it to the one that joins.
TEST_F(WorkersControl, ALostStateIsAnEnd) {
  write_fault("kill", 0, "strategy", 1);
  for (const char* fabric : {"shm", "tcp"}) {
    Process process = start(train(
        fabric, kEndless, of(1, fabric, {"--strategy", "all_reduce", "--faults", "faults.toml"})));
    await(fabric, "running");
    Process join = start({"join", fabric});
    EXPECT_EQ(process.wait(), 1);
    EXPECT_THAT(process.error(), AllOf(HasSubstr("worker 0 was lost"),
                                       HasSubstr("no worker that is left has the state of the run"),
                                       HasSubstr("--resume")));
    // It asks from time to time, and may have seen the new worker among the others before.
    if (join.wait() == 0) {
      EXPECT_THAT(join.output(), HasSubstr("worker 1 takes part"));
    }
    expect_all_ended({});
  }
}

// It could not save anything either.
TEST_F(WorkersControl, AStateThatIsLostWhileARunStopsIsAnEnd) {
  write_fault("freeze", 0, "strategy", 1);
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Process process =
        start(train(fabric, kEndless, joined(patient(1, fabric), {"--strategy", "all_reduce"})));
    await(fabric, "running");
    Process join = start({"join", fabric});
    const auto workers = wait_for_workers(process, 2);
    ASSERT_EQ(workers.size(), 2u);
    ASSERT_TRUE(workers.at(0).frozen_within(kSoon));
    Process stop = start({"stop", fabric});
    await(fabric, "stopping");
    workers.at(0).signal(SIGKILL);
    EXPECT_EQ(process.wait(), 1);
    EXPECT_THAT(process.error(), AllOf(HasSubstr("worker 0 was lost"),
                                       HasSubstr("no worker that is left has the state")));
    stop.wait();
    join.wait();
    expect_all_ended(workers);
  }
}

TEST_F(WorkersControl, WithTooFewTheRunIsSavedAndWaitsForOthers) {
  for (const char* fabric : {"shm", "tcp"}) {
    SCOPED_TRACE(fabric);
    Words words = of(2, fabric, kManySteps);
    words.insert(words.end(), {"--set", "strategy.min_workers=2", "--faults", "faults.toml"});
    Process process = start(train(fabric, kEndless, words));
    const Json status = await(fabric, "waiting");
    const auto step = status.at("step").get<uint64_t>();
    EXPECT_GE(step, kMidway);
    EXPECT_TRUE(exists(fmt::format("{}/checkpoints/step-{:08}", fabric, step)));
    EXPECT_THAT(done({"status", fabric}).output, HasSubstr("waiting for workers, of at least 2"));
    EXPECT_THAT(done({"join", fabric}).output, HasSubstr("worker 2 takes part: the run has 2"));
    EXPECT_EQ(stop(fabric, process).at("workers"), 2);
    EXPECT_THAT(process.error(), HasSubstr("1 of at least 2 workers are left: the run is saved"));
    expect_same_at_its_end(fabric);
  }
}

TEST_F(WorkersControl, WithoutCheckpointsItIsNotSaved) {
  const Words words =
      of(2, "shm",
         {"--set", "strategy.min_workers=2", "--set", "strategy.wait_for_workers=0.2", "--set",
          "checkpoint.enabled=false", "--faults", "faults.toml"});
  EXPECT_THAT(refused(1, train("run", kShort, words)),
              HasSubstr("1 of at least 2 workers are left: the run is not saved, but waits"));
}

TEST_F(WorkersControl, WhenNobodyJoinsTheRunEndsAndResumes) {
  done(train("alone", kShort));
  Words words = of(2, "shm",
                   {"--set", "strategy.min_workers=2", "--set", "strategy.wait_for_workers=0.2",
                    "--faults", "faults.toml"});
  const std::string error = refused(1, train("run", kShort, words));
  EXPECT_THAT(error, HasSubstr("error: 1 of at least 2 workers are left, and no others have joined "
                               "for 0.2 s"));
  EXPECT_EQ(count(error, "error:"), 1) << error;
  EXPECT_FALSE(exists("run/control"));
  done(train("run", kShort, of(3, "tcp", {"--resume"})));
  expect_same("run", "alone");
}

TEST_F(WorkersControl, AWaitingRunCanBeStopped) {
  done(train("alone", kShort));
  Process process = start(train(
      "run", kShort, of(2, "shm", {"--set", "strategy.min_workers=2", "--faults", "faults.toml"})));
  await("run", "waiting");
  EXPECT_THAT(done({"stop", "run"}).output, HasSubstr("it has ended"));
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_THAT(done({"status", "run"}).output, HasSubstr("ended, by signal"));
  done(train("run", kShort, {"--resume"}));
  expect_same("run", "alone");
}

TEST_F(WorkersControl, WhatCantBeDoneIsRefused) {
  EXPECT_THAT(refused(2, {"status", "nowhere"}), HasSubstr("no run is under way in nowhere"));
  EXPECT_THAT(refused(2, train("run", kShort, of(2, "shm", {"--set", "strategy.min_workers=3"}))),
              HasSubstr("strategy.min_workers = 3"));
  Process process = start(train(
      "run", kEndless, of(2, "shm", {"--set", "strategy.min_workers=2", "--set", "shards=2"})));
  await("run", "running");
  EXPECT_THAT(refused(2, {"leave", "run", "--worker", "7"}),
              AllOf(HasSubstr("worker 7 does not take part"), HasSubstr("those that do: 0, 1")));
  EXPECT_THAT(refused(2, {"leave", "run", "--worker", "1"}), HasSubstr("worker 1 is needed"));
  EXPECT_THAT(refused(2, {"join", "run"}), HasSubstr("the run has 2 workers, and can't have more"));
  EXPECT_THAT(refused(2, train("run", kShort, {"--overwrite"})),
              AllOf(HasSubstr("a run is under way in run"), HasSubstr("starling stop run")));
  done({"stop", "run"});
  EXPECT_EQ(process.wait(), 75) << process.error();
}

TEST_F(WorkersControl, ARunOfOneProcessAnswersToo) {
  Process process = start(train("run", kEndless));
  const Json status = await("run", "running");
  EXPECT_EQ(status.at("workers").size(), 1u);
  EXPECT_THAT(refused(2, {"join", "run"}), HasSubstr("--strategy all_reduce"));
  EXPECT_THAT(refused(2, train("run", kShort, {"--resume"})), HasSubstr("a run is under way"));
  done({"stop", "run"});
  EXPECT_EQ(process.wait(), 75) << process.error();
  EXPECT_FALSE(exists("run/control"));
}

TEST_F(WorkersControl, TheNameThatAKilledRunLeftIsTakenOver) {
  for (const int workers : {1, 2}) {
    const std::string run = fmt::format("run{}", workers);
    const Words settings = workers == 1 ? Words{} : of(workers, "shm");
    {
      Process process = start(train(run, kEndless, settings));
      await(run, "running");
      process.signal(SIGKILL);
      process.wait();
    }
    EXPECT_TRUE(exists(run + "/control"));
    EXPECT_THAT(refused(2, {"stop", run}), HasSubstr("no run is under way"));
    Words again = settings;
    again.push_back("--overwrite");
    Process process = start(train(run, kEndless, again));
    await(run, "running");
    done({"stop", run});
    EXPECT_EQ(process.wait(), 75) << process.error();
    EXPECT_FALSE(exists(run + "/control"));
  }
}

}  // namespace
}  // namespace starling
