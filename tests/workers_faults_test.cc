// Faults on purpose that are no kill at a point of the protocol: links that break, full disks,
// damaged checkpoints, faults at a time and of a seed. Real processes; the bits are those of a run
// that nothing happened to.
#include <set>

#include "seeds.h"
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class WorkersFaults : public WorkersTest {
 protected:
  // Of 4 steps: the faults of a seed are over by then, and the disk has room for the results.
  static constexpr int kEpochs = 9;

  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
    done(train("alone", {}));
  }

  static Words train(const std::string& run, const Words& more) {
    Words words = {"train",
                   "mlp.toml",
                   "--run-dir",
                   run,
                   "--no-progress",
                   "--set",
                   fmt::format("training.epochs={}", kEpochs),
                   "--set",
                   "checkpoint.every_steps=3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Words of(int workers, const char* fabric, const std::string& faults) {
    return {"--workers", fmt::format("{}", workers),
            "--lanes",   "1",
            "--set",     fmt::format("strategy.fabric={}", fabric),
            "--faults",  faults};
  }

  void expect_undisturbed(const std::string& run) const {
    EXPECT_EQ(hash(run), hash("alone"));
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("alone/ledger.jsonl"));
    expect_nothing_left({});
  }
};

TEST_F(WorkersFaults, ABrokenLinkCostsOneOfItsEnds) {
  write("link.toml",
        "[[fault]]\naction = \"link\"\nworker = 0\npeer = 1\npoint = \"gradient\"\nstep = 9\n");
  for (const int workers : {2, 4}) {
    const std::string run = fmt::format("run{}", workers);
    done(train(run, of(workers, "tcp", "link.toml")));
    expect_undisturbed(run);
    const Json recovery = report(run).at("recoveries").at(0);
    EXPECT_THAT(to_text(recovery.at("lost")), AnyOf("[0]", "[1]"));
    EXPECT_THAT(recovery.at("how").get<std::string>(), HasSubstr("could not reach it"));
  }
  EXPECT_THAT(refused(2, train("none", of(2, "shm", "link.toml"))), HasSubstr("share memory"));
  Words words = of(2, "tcp", "link.toml");
  words.insert(words.end(), {"--set", "strategy.survive=false"});
  EXPECT_THAT(refused(1, train("all", words)), HasSubstr("step 9"));
}

TEST_F(WorkersFaults, AtATime) {
  write("time.toml", "[[fault]]\naction = \"kill\"\nworker = 1\nat = 0\n");
  for (const char* fabric : {"shm", "tcp"}) {
    done(train(fabric, of(3, fabric, "time.toml")));
    expect_undisturbed(fabric);
    EXPECT_EQ(report(fabric).at("workers"), 2);
  }
}

// What is not done by a signal happens at the next point that the worker passes.
// It can't have said anything by then, and so has no beats to miss.
TEST_F(WorkersFaults, AFreezeBeforeAWorkerTakesPart) {
  write("time.toml", "[[fault]]\naction = \"freeze\"\nworker = 1\nat = 0\n");
  for (const char* fabric : {"shm", "tcp"}) {
    Words words = of(3, fabric, "time.toml");
    words.insert(words.end(), {"--set", "strategy.heartbeat_limit=0.3"});
    done(train(fabric, words));
    expect_undisturbed(fabric);
    EXPECT_EQ(report(fabric).at("workers"), 2);
    EXPECT_THAT(report(fabric).at("recoveries").at(0).at("how").get<std::string>(),
                HasSubstr("it was frozen"));
  }
}

TEST_F(WorkersFaults, AllKindsMayHaveATime) {
  write("faults.toml",
        "[[fault]]\naction = \"link\"\nworker = 0\npeer = 1\nat = 0\n"
        "[[fault]]\naction = \"slow\"\nworker = 2\nfactor = 2\nat = 0\nseconds = 0.05\n"
        "[[fault]]\naction = \"corrupt\"\nat = 0\n");
  Words words = of(3, "tcp", "faults.toml");
  words.insert(words.end(), {"--set", "checkpoint.keep=100"});
  done(train("run", words));
  expect_undisturbed("run");
  EXPECT_EQ(report("run").at("workers"), 2);
  EXPECT_EQ(lost_in("run"), 1u);
  EXPECT_THAT(refused(2, {"eval", "run", "--weights", "run/checkpoints/step-00000003"}),
              HasSubstr("SHA-256"));
  // Without a launcher a kill has its time, too.
  write("time.toml", "[[fault]]\naction = \"kill\"\nworker = 0\nat = 0\n");
  EXPECT_EQ(run(train("killed", {"--faults", "time.toml"})).code, 128 + SIGKILL);
}

TEST_F(WorkersFaults, TheReportHasATableOfThem) {
  write("faults.toml",
        "[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"announced\"\nstep = 5\n"
        "[[fault]]\naction = \"slow\"\nfactor = 2\nsteps = 3\n"
        "[[fault]]\naction = \"freeze\"\nworker = 2\npoint = \"step\"\nstep = 1000\n");
  done(train("run", of(3, "shm", "faults.toml")));
  expect_undisturbed("run");
  const Json faults = report("run").at("faults");
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0].at("action"), "kill");
  EXPECT_EQ(faults[0].at("point"), "announced");
  EXPECT_EQ(faults[0].at("step"), 5);
  EXPECT_EQ(faults[0].at("lost"), 1);
  EXPECT_GE(faults[0].at("detection_s"), 0);
  EXPECT_GE(faults[0].at("resumption_s"), 0);
  EXPECT_GE(faults[0].at("work_lost_s"), 0);
  EXPECT_EQ(faults[1].at("action"), "slow");
  EXPECT_TRUE(faults[1].at("worker").is_null());
  EXPECT_TRUE(faults[1].at("lost").is_null());
  EXPECT_EQ(faults[2].at("worker"), 2);
  EXPECT_TRUE(faults[2].at("lost").is_null()) << "it never came";
}

TEST_F(WorkersFaults, WithoutRoomOnTheDiskTrainingGoesOn) {
  write("disk.toml", "[[fault]]\naction = \"disk\"\nstep = 5\nsteps = 10\n");
  const Ended ended = done(train("run", of(2, "shm", "disk.toml")));
  EXPECT_THAT(ended.error, AllOf(HasSubstr("a checkpoint was not saved, training goes on"),
                                 HasSubstr("the best weights were not saved, training goes on"),
                                 HasSubstr("the ledger was not written, training goes on")));
  expect_undisturbed("run");
  EXPECT_TRUE(exists(fmt::format("run/checkpoints/step-{:08}", 4 * kEpochs)));
}

TEST_F(WorkersFaults, ADamagedCheckpointIsPassedOver) {
  write("faults.toml",
        "[[fault]]\naction = \"corrupt\"\nstep = 17\n"
        "[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"gradient\"\nstep = 17\n");
  Words words = of(2, "shm", "faults.toml");
  words.insert(words.end(), {"--set", "strategy.survive=false"});
  refused(1, train("run", words));
  const Ended ended = done(train("run", {"--resume"}));
  EXPECT_THAT(ended.error, HasSubstr("step-00000015"));
  EXPECT_THAT(ended.error, HasSubstr("SHA-256"));
  expect_undisturbed("run");
}

TEST_F(WorkersFaults, OfASeed) {
  for (uint64_t seed = 0; seed < seed_count(10); ++seed) {
    const char* const fabric = seed % 2 == 0 ? "shm" : "tcp";
    const std::string run = fmt::format("seed{}", seed);
    SCOPED_TRACE(run);
    Words words = of(4, fabric, fmt::format("{}", seed));
    words.insert(words.end(), {"--set", "strategy.heartbeat_limit=1"});
    const Ended ended = done(train(run, words));
    EXPECT_THAT(ended.error, Not(HasSubstr("error:")));
    expect_undisturbed(run);
    const Json found = report(run);
    std::set<int> of_links;  // either end may be lost, and only one knows when that began
    for (const Json& fault : found.at("faults")) {
      if (fault.at("action") == "link" && !fault.at("lost").is_null())
        of_links.insert(fault.at("lost").get<int>());
    }
    for (const Json& recovery : found.at("recoveries")) {
      if (recovery.at("lost").empty() || of_links.contains(recovery.at("lost").at(0))) continue;
      EXPECT_GE(recovery.at("detection_s"), 0);
    }
  }
}

}  // namespace
}  // namespace starling
