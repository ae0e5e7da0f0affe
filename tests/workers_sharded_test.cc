// `sharded`: each worker keeps a slice of the optimizer state, and the bits are those of one
// worker; also through a loss, or after it with --resume. Real processes, as a user starts them.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class WorkersSharded : public WorkersTest {
 protected:
  static Words sharded(int workers, int replicas = 1) {
    return {"--workers",  fmt::format("{}", workers),
            "--lanes",    "1",
            "--strategy", "sharded",
            "--set",      "strategy.fabric=tcp",
            "--set",      fmt::format("strategy.replicas={}", replicas)};
  }

  Ended train(const std::string& job, const std::string& run, const Words& settings,
              const Words& more = {}) const {
    return done(words_of(job, run, settings, more));
  }
  static Words words_of(const std::string& job, const std::string& run, const Words& settings,
                        const Words& more) {
    Words words = {"train", job, "--no-progress", "--run-dir", run};
    words.insert(words.end(), settings.begin(), settings.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Of several blocks, so that every worker has some.
  static Words several_blocks() { return {"--set", "model.layers.0.units=1000"}; }

  // With every number of workers, and compares all that has no times in it.
  void expect_same_bits(const std::string& job, const Words& settings) const {
    train(job, "alone", settings, {"--lanes", "1"});
    for (const int workers : {1, 2, 3, 4, 7}) {
      const int replicas = workers == 3 ? 0 : 1;
      const std::string run = fmt::format("sharded{}", workers);
      SCOPED_TRACE(run);
      train(job, run, settings, sharded(workers, replicas));
      const Json alone = report("alone"), other = report(run);
      for (const char* key :
           {"weights_sha256", "train_loss", "test_loss", "test_accuracy", "steps"})
        EXPECT_EQ(to_text(other.at(key)), to_text(alone.at(key))) << key;
      EXPECT_EQ(other.at("strategy"), workers == 1 ? "single" : "sharded");
      EXPECT_EQ(other.at("bytes_sent") > 0, workers > 1);
      EXPECT_EQ(other.at("samples_unique"), 2 * kSamples);
      for (const char* file : {"/model.safetensors", "/best.safetensors", "/ledger.jsonl"})
        EXPECT_EQ(read(run + file), read(std::string("alone") + file)) << file;
      expect_same_checkpoint(run);
    }
  }

  // The last one has the optimizer state of all, as one worker would have saved it.
  void expect_same_checkpoint(const std::string& run) const {
    for (const char* file : {"optimizer.safetensors", "weights.safetensors"})
      EXPECT_EQ(last_checkpoint(run, file), last_checkpoint("alone", file)) << file;
  }
  std::string last_checkpoint(const std::string& run, const std::string& file) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints"))
      names.insert(entry.path().filename());
    return read(run + "/checkpoints/" + *names.rbegin() + "/" + file);
  }

  void write_faults(const std::vector<std::pair<int, const char*>>& kills, int step) const {
    std::string text;
    for (const auto& [worker, point] : kills) {
      text += fmt::format("[[fault]]\naction = \"kill\"\nworker = {}\npoint = \"{}\"\nstep = {}\n",
                          worker, point, step);
    }
    write("faults.toml", text);
  }
};

TEST_F(WorkersSharded, MlpWithAdamF32) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {});
}

TEST_F(WorkersSharded, MlpWithAdamBf16) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "precision=bf16"});
}

TEST_F(WorkersSharded, MlpWithMomentumSkippingBadSteps) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "optimizer.name=momentum", "--set", "non_finite=skip"});
}

TEST_F(WorkersSharded, MlpWithoutOptimizerState) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "optimizer.name=sgd"});
}

TEST_F(WorkersSharded, CnnF32) {
  write_cnn_job();
  expect_same_bits("cnn.toml", cnn_settings());
}

TEST_F(WorkersSharded, CnnWithMomentumBf16) {
  write_cnn_job();
  Words settings = cnn_settings();
  settings.insert(settings.end(), {"--set", "precision=bf16", "--set", "optimizer.name=momentum"});
  expect_same_bits("cnn.toml", settings);
}

// Slices of several buckets, and buckets of several slices.
TEST_F(WorkersSharded, OverlappedBucketsAccumulatedBatchesAndCheckedWeights) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "model.layers.0.units=6000", "--set",
                                "training.accumulate=2", "--check-every", "1"});
}

TEST_F(WorkersSharded, AWorkerKeepsItsPartOfTheOptimizerState) {
  write_mlp_job();
  const Words settings = {"--set", "model.layers.0.units=6000"};
  train("mlp.toml", "alone", settings);
  const double whole = report("alone").at("optimizer_bytes").at(0);
  EXPECT_GT(whole, 2 * 150'000 * sizeof(float));
  for (const int replicas : {0, 1}) {
    const std::string run = fmt::format("replicas{}", replicas);
    train("mlp.toml", run, settings, sharded(4, replicas));
    const Json bytes = report(run).at("optimizer_bytes");
    ASSERT_EQ(bytes.size(), 4u);
    for (const Json& one : bytes)
      EXPECT_NEAR(one.get<double>(), whole * (1 + replicas) / 4, whole * 0.06);
    Words words = {"describe", "mlp.toml", "--set", "workers=4"};
    words.insert(words.end(), settings.begin(), settings.end());
    const std::string all = done(words).output;
    words.insert(words.end(), {"--set", "strategy.name=sharded", "--set",
                               fmt::format("strategy.replicas={}", replicas)});
    EXPECT_THAT(all, HasSubstr("optimizer 1.1 MiB"));
    EXPECT_THAT(done(words).output,
                HasSubstr(replicas == 0 ? "optimizer 320.0 KiB" : "optimizer 608.0 KiB"));
  }
}

// docs/algorithms.md: L/n of each worker in every step, whatever the optimizer keeps.
TEST_F(WorkersSharded, ACopyCostsTheBytesOfOneGradientAStep) {
  write_mlp_job();
  const Words settings = {"--set", "model.layers.0.units=6000"};
  train("mlp.toml", "without", settings, sharded(4, 0));
  train("mlp.toml", "with", settings, sharded(4, 1));
  const Json without = report("without");
  uint64_t adam_bytes = 0;
  for (const Json& one : without.at("optimizer_bytes")) adam_bytes += one.get<uint64_t>();
  const uint64_t steps = report("with").at("steps");
  EXPECT_EQ(report("with").at("bytes_sent").get<uint64_t>(),
            without.at("bytes_sent").get<uint64_t>() + steps * adam_bytes / 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need memory themselves
// The limit is the kernel's, for each process. The weights have 40 MB, Adam's state 80 MB.
TEST_F(WorkersSharded, TrainsWhereTheWholeStateHasNoRoom) {
  write_mlp_job();
  const auto code_with = [this](const char* strategy) {
    Process process({"/usr/bin/prlimit",
                     fmt::format("--data={}", 207 << 20),
                     STARLING_COMMAND,
                     "train",
                     "mlp.toml",
                     "--no-progress",
                     "--run-dir",
                     strategy,
                     "--workers",
                     "4",
                     "--lanes",
                     "1",
                     "--strategy",
                     strategy,
                     "--set",
                     "strategy.fabric=tcp",
                     "--set",
                     "strategy.replicas=0",
                     "--set",
                     "shards=4",
                     "--set",
                     "data.features=[1000]",
                     "--set",
                     "data.samples=8",
                     "--set",
                     "model.layers.0.units=10000",
                     "--set",
                     "training.batch=8",
                     "--set",
                     "checkpoint.enabled=false"},
                    {.folder = folder_.string()});
    return process.wait();
  };
  EXPECT_EQ(code_with("sharded"), 0);
  EXPECT_NE(code_with("all_reduce"), 0);
  expect_nothing_left({});
}
#endif

// Any strategy goes on from what any other has saved.
TEST_F(WorkersSharded, CheckpointsAreThoseOfAnyStrategy) {
  write_cnn_job();
  Words settings = cnn_settings();
  settings.insert(settings.end(), {"--set", "training.epochs=4"});
  train("cnn.toml", "alone", settings);
  const Words ways[] = {sharded(3), {"--workers", "2"}, sharded(4, 0), {}, sharded(2)};
  for (size_t first = 0; first < std::size(ways); ++first) {
    SCOPED_TRACE(first);
    const std::string run = fmt::format("run{}", first);
    for (size_t epochs = 1; epochs <= 4; ++epochs) {
      Words more = ways[(first + epochs) % std::size(ways)];
      more.insert(more.end(), {"--set", fmt::format("training.epochs={}", epochs)});
      if (epochs > 1) more.emplace_back("--resume");
      train("cnn.toml", run, settings, more);
    }
    EXPECT_EQ(hash(run), hash("alone"));
    expect_same_checkpoint(run);
  }
}

TEST_F(WorkersSharded, SharedMemoryIsRefused) {
  write_mlp_job();
  const std::string error =
      refused(2, {"train", "mlp.toml", "--workers", "2", "--strategy", "sharded"});
  EXPECT_THAT(error, AllOf(HasSubstr("share no memory"), HasSubstr("strategy.fabric = \"tcp\"")));
  expect_told_once(error);
}

TEST_F(WorkersSharded, AGradientThatIsNotFiniteEndsTheRunOnce) {
  write_mlp_job();
  Words words = words_of("mlp.toml", "bad", sharded(3), {"--set", "optimizer.learning_rate=1e30"});
  const std::string error = refused(1, words);
  EXPECT_THAT(error, HasSubstr("is not finite"));
  expect_told_once(error);
}

TEST_F(WorkersSharded, TwoThatAreNotAdjacentMayBeLost) {
  write_mlp_job();
  train("mlp.toml", "alone", several_blocks());
  for (const char* point : {"gradient", "announced", "updated", "evaluation"}) {
    SCOPED_TRACE(point);
    write_faults({{0, point}, {2, point}}, 3);
    Words settings = sharded(4);
    settings.insert(settings.end(), {"--faults", "faults.toml"});
    train("mlp.toml", point, several_blocks(), settings);
    EXPECT_EQ(hash(point), hash("alone"));
    EXPECT_EQ(report(point).at("workers"), 2);
    expect_same_checkpoint(point);
    expect_nothing_left({});
  }
}

// One is lost while the slices of another are cut anew, which is then done once more; or when that
// is done, also one that had the copy of the other's slice.
TEST_F(WorkersSharded, OneMayBeLostAfterAnother) {
  write_mlp_job();
  train("mlp.toml", "alone", several_blocks());
  for (const std::pair<int, const char*>& second :
       {std::pair{3, "strategy"}, {3, "sliced"}, {2, "spread"}, {3, "spread"}, {2, "committed"}}) {
    const std::string run = fmt::format("{}{}", second.second, second.first);
    SCOPED_TRACE(run);
    write_faults({{1, "gradient"}, second}, 3);
    Words settings = sharded(4);
    settings.insert(settings.end(), {"--faults", "faults.toml"});
    train("mlp.toml", run, several_blocks(), settings);
    EXPECT_EQ(hash(run), hash("alone"));
    EXPECT_EQ(lost_in(run), 2u);
    expect_nothing_left({});
  }
}

TEST_F(WorkersSharded, TwoAdjacentLossesAreSaidPlainlyAndResumed) {
  write_mlp_job();
  train("mlp.toml", "alone", several_blocks());
  for (const char* point : {"gradient", "announced", "updated", "sliced"}) {
    SCOPED_TRACE(point);
    // When slices are cut anew, the first is gone already, and the second has the only copy.
    const bool has_only_copy = point == std::string("sliced");
    write_faults({{1, has_only_copy ? "gradient" : point}, {2, point}}, 6);
    Words settings = sharded(4);
    settings.insert(settings.end(), {"--set", "checkpoint.every_steps=2"});
    for (const std::string& word : several_blocks()) settings.push_back(word);
    const Words words = words_of("mlp.toml", point, settings, {"--faults", "faults.toml"});
    const Ended ended = run(words);
    if (ended.code == 0 &&
        !has_only_copy) {  // the second came there after the slices were cut anew
      EXPECT_EQ(lost_in(point), 2u);
    } else {
      EXPECT_EQ(ended.code, 1);
      EXPECT_THAT(ended.error,
                  AllOf(HasSubstr("of the 4 slices of the optimizer state these were lost: "
                                  "slice 2 with worker 1 and worker 2, which had the copy"),
                        Not(HasSubstr("slice 3")), HasSubstr("\nhint: "), HasSubstr("--resume")));
      EXPECT_EQ(count(ended.error, "error: "), 1);
      train("mlp.toml", point, settings, {"--resume"});
    }
    EXPECT_EQ(hash(point), hash("alone"));
    expect_nothing_left({});
  }
}

TEST_F(WorkersSharded, WithoutACopyALossEndsTheRunAndIsResumed) {
  write_mlp_job();
  train("mlp.toml", "alone", several_blocks());
  for (const char* point : {"gradient", "announced", "checkpoint"}) {
    SCOPED_TRACE(point);
    write_faults({{0, point}}, 6);
    Words settings = sharded(3, 0);
    settings.insert(settings.end(), {"--set", "checkpoint.every_steps=2"});
    for (const std::string& word : several_blocks()) settings.push_back(word);
    const std::string error =
        refused(1, words_of("mlp.toml", point, settings, {"--faults", "faults.toml"}));
    EXPECT_THAT(error, AllOf(HasSubstr("slice 1 with worker 0"), HasSubstr("keeps no copy"),
                             HasSubstr("--resume"), HasSubstr("strategy.replicas = 1")));
    EXPECT_EQ(count(error, "error: "), 1);
    expect_all_ended({});
    train("mlp.toml", point, settings, {"--resume"});
    EXPECT_EQ(hash(point), hash("alone"));
    expect_nothing_left({});
  }
}

}  // namespace
}  // namespace starling
