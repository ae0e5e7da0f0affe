// `non_finite = "roll_back"` with workers as processes: all go back together, whoever is lost on
// the way. The learning rate of the first four steps is far too large: the second and the fourth of
// them see what the one before has made of the weights.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

class WorkersRollBack : public WorkersTest {
 protected:
  void SetUp() override {
    WorkersTest::SetUp();
    write_mlp_job();
  }

  static Words train(const std::string& run, int workers, const std::string& strategy,
                     const std::string& fabric, const Words& more = {}) {
    Words words = {"train", "mlp.toml", "--no-progress", "--run-dir", run, "--lanes", "1"};
    words.insert(words.end(), {"--workers", fmt::format("{}", workers), "--strategy", strategy});
    for (const std::string& setting :
         {"strategy.fabric=" + fabric, std::string("non_finite=roll_back"),
          std::string("model.layers.0.units=1000"),  // of several blocks: every worker has some
          std::string("optimizer.name=sgd"), std::string("optimizer.learning_rate=1e30"),
          std::string("optimizer.schedule.name=step"), std::string("optimizer.schedule.every=4"),
          std::string("optimizer.schedule.gamma=1e-32"),
          std::string("checkpoint.every_seconds=0")}) {
      words.insert(words.end(), {"--set", setting});
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  void expect_as_alone(const std::string& run) const {
    if (!exists("alone")) done(train("alone", 1, "single", "shm"));
    for (const char* key : {"weights_sha256", "test_loss", "steps", "skipped_steps", "roll_backs",
                            "samples_unique", "samples_duplicated", "samples_missing"})
      EXPECT_EQ(to_text(report(run).at(key)), to_text(report("alone").at(key))) << key;
    EXPECT_EQ(report(run).at("roll_backs"), 2);
    EXPECT_EQ(report(run).at("skipped_steps"), 4);
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("alone/ledger.jsonl"));
  }

  static constexpr std::pair<const char*, const char*> kWays[] = {
      {"all_reduce", "shm"}, {"all_reduce", "tcp"}, {"sharded", "tcp"}};
};

TEST_F(WorkersRollBack, AllGoBackTogether) {
  for (const auto& [strategy, fabric] : kWays) {
    const std::string run = fmt::format("{}_{}", strategy, fabric);
    SCOPED_TRACE(run);
    EXPECT_THAT(done(train(run, 3, strategy, fabric)).error,
                HasSubstr("epoch 1 step 4: rolled back, a number was not finite; the run goes on "
                          "with the weights of step 0"));
    expect_as_alone(run);
  }
}

// Before the first roll back, between the two, and after them, in the update: its numbers begin
// anew then.
TEST_F(WorkersRollBack, WhoeverIsLostOnTheWay) {
  for (const auto& [strategy, fabric] : kWays) {
    for (const auto& [worker, point, step] :
         {std::tuple{0, "step", 2},
          {1, "announced", 2},
          {0, "step", 3},
          {2, "updated", 3},
          {0, "step", 5},
          {1, "update", 5},
          {2, fabric == std::string("shm") ? "block" : "updated", 6}}) {
      const std::string run = fmt::format("{}_{}_{}_{}", strategy, fabric, point, step);
      SCOPED_TRACE(run);
      write("faults.toml",
            fmt::format("[[fault]]\naction = \"kill\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                        worker, point, step));
      done(train(run, 3, strategy, fabric, {"--faults", "faults.toml"}));
      EXPECT_EQ(lost_in(run), 1u);
      expect_as_alone(run);
    }
  }
}

TEST_F(WorkersRollBack, TooManyAreToldOnce) {
  for (const auto& [strategy, fabric] : kWays) {
    SCOPED_TRACE(fmt::format("{} {}", strategy, fabric));
    const std::string error =
        refused(1, train("bad", 3, strategy, fabric,
                         {"--overwrite", "--set", "optimizer.schedule.name=constant", "--set",
                          "training.batch=5"}));
    expect_told_once(error);
    EXPECT_THAT(error, HasSubstr("epoch 1 step 22: a number was not finite after 10 roll backs"));
  }
}

TEST_F(WorkersRollBack, IsRefusedWhereItCanNotBeDone) {
  EXPECT_THAT(
      refused(2, train("run", 2, "all_reduce", "shm", {"--set", "checkpoint.enabled=false"})),
      HasSubstr("without checkpoints to go back to"));
  const std::string error = refused(2, train("run", 2, "local_sgd", "shm", {"--overwrite"}));
  expect_told_once(error);
  EXPECT_THAT(error, HasSubstr("workers that train apart don't roll back"));
}

}  // namespace
}  // namespace starling
