// `starling launch`: programs of the user's own as workers.
#include <sys/stat.h>

#include <set>

#include "base/isa.h"
#include "cluster/core_plan.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string example_workers() {
  return std::filesystem::path(STARLING_COMMAND).replace_filename("example_fashion_workers");
}

TEST_F(WorkersTest, ExampleHasTheSameWeightsAloneAndLaunched) {
  const std::string program = example_workers();
  Process alone({program, "--synthetic"}, {.folder = folder_.string()});
  ASSERT_EQ(alone.wait(), 0) << alone.error();
  EXPECT_THAT(alone.output(), HasSubstr("weights "));
  for (const char* fabric : {"shm", "tcp"}) {
    const Ended ended =
        done({"launch", "-n", "3", "--fabric", fabric, "--", program, "--synthetic"});
    EXPECT_EQ(ended.output, alone.output());
    EXPECT_THAT(ended.error, AllOf(HasSubstr("[worker 1] worker 1 of 3 is done\n"),
                                   HasSubstr("[worker 2] worker 2 of 3 is done\n")));
  }
}

TEST_F(WorkersTest, ProgramsOfOnesOwnAreCappedByTheEnvironmentToo) {
  const std::string program = example_workers();
  const auto weights = [&](const std::vector<std::string>& variables) {
    variables_ = variables;
    return done({"launch", "-n", "2", "--", program, "--synthetic"}).output;
  };
  EXPECT_EQ(weights({"STARLING_ISA=sse4"}) == weights({}), isa_name() == "sse4");
}

TEST_F(WorkersTest, LinesOfWorkersAreMarkedAndWhole) {
  const Ended ended = done({"launch", "-n", "3", "--", "/bin/sh", "-c",
                            "echo out $STARLING_RANK; echo err >&2; printf 'no end'"});
  EXPECT_EQ(ended.output, "out 0\nno end");
  for (const char* line : {"[worker 1] out 1\n", "[worker 1] err\n", "[worker 1] no end\n",
                           "[worker 2] out 2\n", "[worker 2] err\n", "[worker 2] no end\n"}) {
    EXPECT_THAT(ended.error, HasSubstr(line));
  }
  EXPECT_THAT(ended.error, Not(HasSubstr("[worker 0]")));
}

TEST_F(WorkersTest, ALineOfAnyLengthIsPassedOn) {
  const Ended ended = done({"launch", "-n", "2", "--", "/bin/sh", "-c",
                            "test $STARLING_RANK = 0 || { seq -s, 60000; printf 'no end'; }"});
  std::string expected, found;
  for (int i = 1; i <= 60000; ++i) expected += fmt::format("{}{}", i > 1 ? "," : "", i);
  std::istringstream lines(ended.error);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(line.starts_with("[worker 1] ")) << line.substr(0, 20);
    found += line.substr(11);
  }
  EXPECT_TRUE(found == expected + "no end") << "of " << expected.size() << " " << found.size();
}

TEST_F(WorkersTest, CodeOfTheOneThatFailedIsTheLaunchers) {
  for (const int rank : {0, 2}) {
    const std::string script = fmt::format("test $STARLING_RANK != {} || exit 7", rank);
    EXPECT_EQ(run({"launch", "-n", "3", "--", "/bin/sh", "-c", script}).code, 7);
  }
}

// Of its children, which is how some start others: a program inherits it.
TEST_F(WorkersTest, EndsAreSeenAlsoWhereWhoStartsTheLauncherIgnoresThem) {
  const auto launch = [this](const std::vector<std::string>& command) {
    Process process(joined({STARLING_COMMAND, "launch", "-n", "2", "--"}, command),
                    {.folder = folder_.string(), .ignored = SIGCHLD});
    const int code = process.wait();
    return Ended{code, process.output(), process.error()};
  };
  EXPECT_EQ(launch({"/bin/true"}).code, 0);
  EXPECT_EQ(launch({"/bin/sh", "-c", "exit 7"}).code, 7);
  // Workers don't inherit it.
  const std::string ignored = launch({"/bin/grep", "SigIgn", "/proc/self/status"}).output;
  EXPECT_EQ(std::stoull(ignored.substr(ignored.find(':') + 1), nullptr, 16) >> (SIGCHLD - 1) & 1,
            0u)
      << ignored;
}

// Without having failed, and before it has met them: the one over whose end nobody is told by the
// kernel.
TEST_F(WorkersTest, WhoEndsEarlyKeepsNobodyWaiting) {
  const std::string script =
      "if [ $STARLING_RANK = 1 ]; then exit 0; fi; exec " + example_workers() + " --synthetic";
  for (const char* const fabric : {"shm", "tcp"}) {
    const Ended ended =
        run({"launch", "-n", "3", "--fabric", fabric, "--", "/bin/sh", "-c", script});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.error, ContainsRegex("peer 1 is gone|worker 1 has ended before it met"))
        << fabric;
  }
}

// They may have said nothing.
TEST_F(WorkersTest, WhichFailedIsSaid) {
  const Ended ended = run({"launch", "-n", "2", "--", "/bin/sh", "-c",
                           "if [ $STARLING_RANK = 1 ]; then exit 3; fi; sleep 60"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.error, HasSubstr("error: worker 1 ended with exit code 3"));
  const Ended killed = run({"launch", "-n", "1", "--", "/bin/sh", "-c", "kill -SEGV $$"});
  EXPECT_EQ(killed.code, 1);
  EXPECT_THAT(killed.error, AllOf(HasSubstr("worker 0 was ended by signal 11"),
                                  Not(HasSubstr("--resume")), Not(HasSubstr("exit code"))));
}

TEST_F(WorkersTest, AreNamedAmongProcesses) {
  write_mlp_job();
  Process process =
      start({"train", "mlp.toml", "--workers", "2", "--set", "training.epochs=100000"});
  ASSERT_TRUE(process.wait_for_line("epoch 1/")) << process.error();
  std::vector<std::string> names;
  for (const auto& [rank, worker] : workers_of(process)) {
    std::ifstream file(fmt::format("/proc/{}/comm", worker.id()));
    names.emplace_back();
    std::getline(file, names.back());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("starling-w0", "starling-w1"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.error();
}

TEST_F(WorkersTest, ProgramThatIsNotThereIsSaidOnce) {
  const std::string error = refused(2, {"launch", "-n", "3", "--", "./nothing"});
  EXPECT_THAT(error, HasSubstr("./nothing can't be started: No such file or directory"));
  EXPECT_THAT(error, Not(HasSubstr("[worker")));
}

// A worker that does not notice the loss of another, and has a process of its own.
TEST_F(WorkersTest, WorkersThatGoOnAfterAFailureAreKilledWithAllTheyStarted) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);  // that nobody will write to
  const Ended ended = run({"launch", "-n", "2", "--", "/bin/sh", "-c",
                           "if [ $STARLING_RANK = 1 ]; then exit 7; fi; cat pipe; "
                           "echo never"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.error, HasSubstr("worker 0 has not ended"));
  EXPECT_THAT(ended.output, Not(HasSubstr("never")));
}

// What runs until it is killed: reads from a pipe that nobody writes to.
class WorkersThatStay : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  }

  Process launch(const std::string& script) const {
    return start({"launch", "-n", "2", "--", "/bin/sh", "-c", script});
  }

  // Processes by the numbers that stand alone on `lines` lines of standard error.
  static std::vector<Watched> processes_on(Process& process, int lines) {
    std::vector<Watched> found;
    for (int line = 0; line < lines; ++line)
      EXPECT_TRUE(process.wait_for_line(fmt::format("process {} ", line))) << process.error();
    std::istringstream words(process.error());
    for (std::string word; words >> word;) {
      if (!word.starts_with("id=")) continue;
      found.emplace_back(static_cast<pid_t>(std::stoi(word.substr(3))));
    }
    return found;
  }
};

// The kernel tells a worker that its launcher is dead, but not what the worker has started.
TEST_F(WorkersThatStay, AndAllTheyStartedEndWithTheLauncher) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    SCOPED_TRACE(signal);
    Process process = launch(
        "/bin/sh -c 'echo process $STARLING_RANK id=$$ >&2; exec cat pipe' & cat pipe & wait");
    const std::vector<Watched> started = processes_on(process, 2);
    const auto workers = wait_for_workers(process, 2);
    ASSERT_EQ(started.size(), 2u);
    process.signal(signal);
    EXPECT_EQ(process.wait(), 128 + signal);
    for (const Watched& one : started) EXPECT_TRUE(one.ended_within(kSoon));
    expect_nothing_left(workers);
    EXPECT_THAT(process.error(), Not(HasSubstr("error:")));
  }
}

TEST_F(WorkersThatStay, AreKilledAfterASecondSignal) {
  Process process =
      launch("trap '' TERM; echo process $STARLING_RANK >&2; while true; do cat pipe; done");
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(process.wait_for_line(fmt::format("process {}", rank)));
  const auto workers = wait_for_workers(process, 2);
  process.signal(SIGTERM);
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 1);
  EXPECT_EQ(count(process.error(), "has not ended 1 s after a second signal: it is killed"), 2);
  expect_nothing_left(workers);
}

class WorkersThatWrite : public WorkersThatStay {
 protected:
  // Worker 1 runs the script, which starts a process that writes without end and leaves its number
  // in a file. What it writes goes nowhere.
  Process launch_writer(const std::string& script) const {
    write("writer.sh", "test $STARLING_RANK = 0 || { " + script + "; }\n");
    return Process(
        {"/bin/sh", "-c",
         fmt::format("exec {} launch -n 2 -- /bin/sh writer.sh 2> /dev/null", STARLING_COMMAND)},
        {.folder = folder_.string()});
  }

  // Waits until that has written more than pipes hold; false when the deadline passes.
  bool is_writing() const {
    const auto end = Process::Clock::now() + kSoon;
    while (Process::Clock::now() < end) {
      std::string number, word;
      std::ifstream(folder_ / "number") >> number;
      std::ifstream counts("/proc/" + number + "/io");
      for (int64_t bytes = 0; counts >> word;) {
        if (word == "wchar:" && counts >> bytes && bytes > 1'000'000) return true;
      }
    }
    return false;
  }
};

// The launcher has all else to do meanwhile.
TEST_F(WorkersThatWrite, CanBeStopped) {
  Process process = launch_writer("echo $$ > number; exec yes");
  ASSERT_TRUE(is_writing());
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  expect_nothing_left({});
}

TEST_F(WorkersThatWrite, AndLeaveOthersThatDoEndWithThem) {
  Process process = launch_writer("yes & echo $! > number; cat pipe");
  ASSERT_TRUE(is_writing());
  std::ofstream(folder_ / "pipe").close();  // then the worker ends
  EXPECT_EQ(process.wait(), 0);
  expect_nothing_left({});
}

// On a terminal: script makes one.
TEST_F(WorkersTest, ThereIsOneProgressBarForAll) {
  write_mlp_job();
  for (const char* strategy : {"all_reduce", "local_sgd"}) {
    Process process({"/usr/bin/script", "-qec",
                     fmt::format("{0} train mlp.toml --workers 3 --lanes 1 --strategy {1} "
                                 "--run-dir {1} --set strategy.period=1 --set data.samples=4000",
                                 STARLING_COMMAND, strategy),
                     "/dev/null"},
                    {.folder = folder_.string()});
    EXPECT_EQ(process.wait(), 0) << process.output();
    const std::string& text = process.output();
    EXPECT_THAT(text, Not(HasSubstr("[worker ")));
    for (const char* line : {"epoch 1/2  loss ", "epoch 2/2  loss ", "test accuracy "})
      EXPECT_EQ(count(text, line), 1) << text;
    EXPECT_GT(count(text, "\r"), count(text, "\n")) << "lines that are drawn over: " << text;
    EXPECT_THAT(text, HasSubstr("/100  ")) << "steps of an epoch under way";
  }
}

TEST_F(WorkersTest, EachHasCoresOfItsOwnWhenThereAreEnough) {
  const size_t cores = available_cpus().size();
  const auto cores_of = [this](const char* workers, const char* lanes) {
    const Ended ended = done({"launch", "-n", workers, "--lanes", lanes, "--", "/bin/sh", "-c",
                              "echo cores $(grep Cpus_allowed_list /proc/self/status) >&2"});
    std::multiset<std::string> lists;
    std::istringstream lines(ended.error);
    for (std::string line; std::getline(lines, line);)
      lists.insert(line.substr(line.find("cores")));
    return lists;
  };
  const auto one_lane = cores_of("2", "1");
  ASSERT_EQ(one_lane.size(), 2u);
  EXPECT_EQ(one_lane.count(*one_lane.begin()), cores >= 2 ? 1u : 2u) << "apart where they can be";
  const auto many = cores_of("3", "1000");
  EXPECT_EQ(many.count(*many.begin()), 3u) << "anywhere where they can't";
}

}  // namespace
}  // namespace starling
