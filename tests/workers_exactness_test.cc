// The same bits for every number of workers, over every fabric: real processes, as a user starts
// them.
#include "workers_testing.h"

namespace starling {
namespace {

class WorkersExactness : public WorkersTest {
 protected:
  using Words = std::vector<std::string>;

  // Trains `job` with every number of workers, and compares all that has no times in it.
  void expect_same_bits(const std::string& job, const Words& settings) const {
    Words base = {"train", job, "--no-progress"};
    base.insert(base.end(), settings.begin(), settings.end());
    train(base, "alone", {"--lanes", "1"});
    for (const int workers : {1, 2, 3, 4, 7, 8}) {
      for (const char* lanes : {"1", "2"}) {
        for (const char* fabric : {"shm", "tcp"}) {
          if (workers == 1 && fabric == std::string("tcp")) continue;  // nobody to talk to
          const std::string name = fmt::format("{}x{}_{}", workers, lanes, fabric);
          SCOPED_TRACE(name);
          train(base, name,
                {"--workers", fmt::format("{}", workers), "--lanes", lanes, "--set",
                 fmt::format("strategy.fabric={}", fabric)});
          expect_like_alone(name, workers, fabric == std::string("tcp"));
        }
      }
    }
  }

 private:
  void train(Words words, const std::string& run, const Words& more) const {
    words.insert(words.end(), {"--run-dir", run});
    words.insert(words.end(), more.begin(), more.end());
    done(words);
  }

  void expect_like_alone(const std::string& run, int workers, bool is_tcp) const {
    const nlohmann::json alone = report("alone"), other = report(run);
    for (const char* key : {"weights_sha256", "train_loss", "test_loss", "test_accuracy", "steps"})
      EXPECT_EQ(to_text(other.at(key)), to_text(alone.at(key))) << key;
    EXPECT_EQ(other.at("workers"), workers);
    EXPECT_EQ(other.at("strategy"), workers == 1 ? "single" : "all_reduce");
    int shards = 0;
    uint64_t bytes = 0;
    EXPECT_EQ(other.at("worker_times").size(), static_cast<size_t>(workers));
    for (const nlohmann::json& worker : other.at("worker_times")) {
      EXPECT_GT(worker.at("shards"), 0);
      // Through shared memory a few have so little to update that they read nothing of others.
      EXPECT_TRUE(worker.at("bytes_sent") > 0 || !is_tcp);
      shards += worker.at("shards").get<int>();
      bytes += worker.at("bytes_sent").get<uint64_t>();
    }
    EXPECT_EQ(shards, other.at("shards"));
    EXPECT_EQ(bytes, other.at("bytes_sent"));
    EXPECT_EQ(bytes > 0, workers > 1);
    EXPECT_EQ(other.at("samples_unique"), 2 * kSamples);
    EXPECT_EQ(other.at("samples_duplicated"), 0);
    EXPECT_EQ(other.at("samples_missing"), 0);
    for (const char* file : {"/model.safetensors", "/best.safetensors", "/ledger.jsonl"})
      EXPECT_EQ(read(run + file), read(std::string("alone") + file)) << file;
  }
};

TEST_F(WorkersExactness, MlpF32) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {});
}

// What is fastest may have other bits, but about the same numbers.
TEST_F(WorkersExactness, NotAskedFor) {
  write_mlp_job();
  const std::string large = "model.layers.0.units=60000";
  done({"train", "mlp.toml", "--no-progress", "--run-dir", "alone", "--set", large});
  done({"train", "mlp.toml", "--no-progress", "--run-dir", "ring", "--workers", "3", "--lanes", "1",
        "--set", "strategy.fabric=tcp", "--set", "strategy.exact=false", "--set", large});
  EXPECT_NE(hash("ring"), hash("alone"));
  EXPECT_EQ(report("alone").at("exact"), true);
  EXPECT_EQ(report("ring").at("exact"), false);
  EXPECT_NEAR(report("ring").at("train_loss"), report("alone").at("train_loss"), 1e-4);
}

TEST_F(WorkersExactness, MlpBf16) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "precision=bf16"});
}

TEST_F(WorkersExactness, CnnF32) {
  write_cnn_job();
  expect_same_bits("cnn.toml", cnn_settings());
}

TEST_F(WorkersExactness, CnnBf16) {
  write_cnn_job();
  Words settings = cnn_settings();
  settings.insert(settings.end(), {"--set", "precision=bf16"});
  expect_same_bits("cnn.toml", settings);
}

TEST_F(WorkersExactness, LateGradients) {
  write_wide_job();
  expect_same_bits("wide.toml", {});
  // Workers that share memory read only what the others' gradients are made of.
  EXPECT_LT(report("2x1_shm").at("bytes_sent").get<double>(),
            report("2x1_tcp").at("bytes_sent").get<double>() / 2);
}

TEST_F(WorkersExactness, LateGradientsBf16) {
  write_wide_job();
  expect_same_bits("wide.toml", {"--set", "precision=bf16"});
}

TEST_F(WorkersExactness, LateGradientsClipped) {
  write_wide_job();
  expect_same_bits("wide.toml", {"--set", "optimizer.clip_norm=0.5"});
}

// A gradient of several buckets: over tcp some are exchanged while others are computed.
TEST_F(WorkersExactness, OverlappedBuckets) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "model.layers.0.units=6000"});
  EXPECT_EQ(report("2x1_shm").at("worker_times").at(0).at("hidden_s"), 0);
}

// Steps of 40 + 40 and 40 + 10 samples.
TEST_F(WorkersExactness, AccumulatedBatchesOfTheMlp) {
  write_mlp_job();
  expect_same_bits("mlp.toml", {"--set", "training.accumulate=2"});
}

TEST_F(WorkersExactness, AccumulatedBatchesOfTheCnn) {
  write_cnn_job();
  Words settings = cnn_settings();
  settings.insert(settings.end(), {"--set", "training.accumulate=2"});
  expect_same_bits("cnn.toml", settings);
}

}  // namespace
}  // namespace starling
