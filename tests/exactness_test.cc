// The same bits for every number of lanes, and of workers. A second build of this file has two
// leaves of the reduction tree exchanged whenever there is more than one lane or worker: it must
// fail (CMakeLists.txt).
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "engine/executor.h"
#include "graph/graph.h"
#include "seeds.h"
#include "starling/starling.h"
#include "tensor/tree_sum.h"
#include "train/state.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

struct ExactCase {
  const char* name;
  Model model;
  Precision precision;
  int64_t micro_batch = 3;  // 64: shards of dense models are computed together
};
void PrintTo(const ExactCase& c, std::ostream* out) { *out << c.name; }

Model mlp() {
  return Sequential({12, 12, 1}, {flatten(), dense(40, relu).with_weight_decay(0.1), dense(10)});
}
Model cnn() {
  return Sequential({12, 12, 1}, {conv2d(8, 3, linear, {.bias = false}), batch_norm(), relu,
                                  max_pool2d(2), dropout(0.25f), conv2d(16, 3), batch_norm(), relu,
                                  flatten(), dropout(0.5f), dense(10).with_weight_decay(0)});
}

// For so many lanes or workers.
void choose_tree([[maybe_unused]] int count) {
#ifdef STARLING_SWAPPED_TREE
  set_swapped_tree(count > 1);
#endif
}

class Exactness : public testing::TestWithParam<ExactCase> {};

void expect_lanes_give_the_same_bits(const ExactCase& exact, uint64_t seed) {
  // 300 samples in batches of 64: the last batch of an epoch has 44, so shards are uneven.
  const data::Dataset data =
      data::synthetic({.samples = 300, .features = {12, 12, 1}, .classes = 10}).cached();
  std::string expected;
  double expected_loss = 0, expected_validation = 0;
  for (const int lanes : {1, 2, 3, 8}) {
    choose_tree(lanes);
    Trainer trainer(exact.model, {.optimizer = adam(1e-3, {.weight_decay = 0.01, .clip_norm = 1.0}),
                                  .loss = softmax_cross_entropy(),
                                  .seed = seed,
                                  .lanes = lanes,
                                  .shards = 8,
                                  .micro_batch = exact.micro_batch,
                                  .precision = exact.precision});
    const History history = trainer.fit(data, {.epochs = 2, .batch = 64, .validation = data});
    const EpochRecord& last = history.epochs().back();
    if (lanes == 1) {
      expected = trainer.weights_sha256();
      expected_loss = last.value("train_loss");
      expected_validation = last.value("val_loss");
    }
    EXPECT_EQ(trainer.weights_sha256(), expected) << lanes << " lanes";
    EXPECT_EQ(last.value("train_loss"), expected_loss) << lanes << " lanes";
    EXPECT_EQ(last.value("val_loss"), expected_validation) << lanes << " lanes";
    EXPECT_EQ(trainer.summary().samples_unique, 600u);
    EXPECT_EQ(trainer.summary().samples_duplicated, 0u);
    EXPECT_EQ(trainer.summary().samples_missing, 0u);
  }
}

TEST_P(Exactness, LanesDoNotChangeTheBits) {
  for (uint64_t seed = 3; seed < 3 + seed_count(1); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_lanes_give_the_same_bits(GetParam(), seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Exactness,
                         testing::Values(ExactCase{"MlpF32", mlp(), Precision::kF32},
                                         ExactCase{"MlpStacked", mlp(), Precision::kF32, 64},
                                         ExactCase{"MlpStackedBf16", mlp(), Precision::kBf16, 64},
                                         ExactCase{"CnnF32", cnn(), Precision::kF32},
                                         ExactCase{"MlpBf16", mlp(), Precision::kBf16},
                                         ExactCase{"CnnBf16", cnn(), Precision::kBf16}),
                         [](const auto& test) { return test.param.name; });

// Threads here; tests/workers_exactness_test.cc has processes. Each worker has two of the shards or
// more: partial sums and what is made of them go along the tree.
struct WorkersCase {
  const char* name;
  const char* strategy;
  FabricKind fabric;
};
void PrintTo(const WorkersCase& c, std::ostream* out) { *out << c.name; }

class WorkersAsThreads : public testing::TestWithParam<WorkersCase> {};

TEST_P(WorkersAsThreads, DoNotChangeTheBits) {
  const data::Dataset data =
      data::synthetic({.samples = 150, .features = {12, 12, 1}, .classes = 10}).cached();
  const auto train = [&](const Cluster& cluster, const char* strategy) {
    Trainer trainer(cnn(), {.optimizer = adam(1e-3, {.weight_decay = 0.01, .clip_norm = 1.0}),
                            .loss = softmax_cross_entropy(),
                            .seed = 3,
                            .lanes = 1,
                            .shards = 8,
                            .cluster = cluster,
                            .strategy = {.name = strategy}});
    trainer.fit(data, {.batch = 64});
    EXPECT_EQ(trainer.summary().samples_unique, 150u);
    if (cluster.workers() > 1) {
      for (const WorkerTimes& worker : trainer.summary().times) {
        EXPECT_GT(worker.shards, 1) << worker.worker;
        EXPECT_GT(worker.bytes_sent, 0u) << worker.worker;
      }
    }
    return trainer.weights_sha256();
  };
  choose_tree(1);
  const std::string alone = train(Cluster(), "single");
  for (const int workers : {2, 3}) {
    SCOPED_TRACE(workers);
    choose_tree(workers);
    for (const std::string& error : run_workers(
             workers,
             [&](const std::shared_ptr<World>& world) {
               EXPECT_EQ(train(Cluster(world), GetParam().strategy), alone);
             },
             GetParam().fabric)) {
      EXPECT_EQ(error, "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkersAsThreads,
                         testing::Values(WorkersCase{"Shm", "all_reduce", FabricKind::kShm},
                                         WorkersCase{"Tcp", "all_reduce", FabricKind::kTcp},
                                         WorkersCase{"Sharded", "sharded", FabricKind::kTcp}),
                         [](const auto& test) { return test.param.name; });

#ifndef STARLING_SWAPPED_TREE

// The gradient of a batch, as the trainer sums it, by an executor with these settings.
std::vector<float> summed_gradient(const Model& model, const data::Dataset& data, uint64_t n,
                                   ExecutorOptions options) {
  TrainState state(model.graph(), sgd(0.1), 1);
  Executor executor(model.graph(), softmax_cross_entropy(), {}, state.space, state.moments,
                    state.weights.data(), options);
  std::vector<uint64_t> ids(n);
  for (uint64_t i = 0; i < n; ++i) ids[i] = i;
  const RowReader reader = [&](std::span<const uint64_t> rows, float* x, float* y) {
    data.read(rows, x, y);
  };
  executor.gradient({.samples = ids, .reader = &reader});
  std::vector<float> sum(state.space.total_floats());
  for (size_t i = 0; i < sum.size(); i += kBlockElements) {
    std::vector<const float*> at;
    for (const float* shard : executor.gradients()) at.push_back(shard + i);
    tree_sum(at, std::min(kBlockElements, sum.size() - i), sum.data() + i);
  }
  return sum;
}

// One shard is the plain mean over the batch; more shards are the same sum in another order.
TEST(Shards, AnyBatchSizeGivesTheMeanGradient) {
  const data::Dataset data =
      data::synthetic({.samples = 64, .features = {12, 12, 1}, .classes = 10}).cached();
  constexpr int kShards = 8;
  for (const uint64_t n : {1, kShards - 1, kShards, kShards + 1, 50}) {
    const auto expected = summed_gradient(mlp(), data, n, {.lanes = 1, .shards = 1});
    const auto actual =
        summed_gradient(mlp(), data, n, {.lanes = 2, .shards = kShards, .micro_batch = 2});
    float largest = 0;
    for (float g : expected) largest = std::max(largest, std::abs(g));
    ASSERT_GT(largest, 0);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 2e-6f * largest) << "n = " << n;
  }
}

TEST(Shards, BoundsAreThoseOfTheRule) {
  for (const int64_t n : {0, 1, 7, 8, 9, 64}) {
    EXPECT_EQ(shard_begin(n, 0, 8), 0);
    EXPECT_EQ(shard_begin(n, 8, 8), n);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(shard_begin(n, i, 8), i * n / 8);
  }
}

TEST(Lanes, AllOfThemComputeShards) {
  const data::Dataset data =
      data::synthetic({.samples = 64, .features = {12, 12, 1}, .classes = 10}).cached();
  // Each shard waits until every lane has one: none can do another's work.
  constexpr int kLanes = 3;
  std::set<std::thread::id> threads;
  std::mutex mutex;
  std::atomic<int> arrived{0};
  const Model model = mlp();
  TrainState state(model.graph(), sgd(0.1), 1);
  Executor executor(model.graph(), softmax_cross_entropy(), {}, state.space, state.moments,
                    state.weights.data(), {.lanes = kLanes, .shards = kLanes});
  std::vector<uint64_t> ids{0, 1, 2, 3, 4, 5};
  const RowReader reader = [&](std::span<const uint64_t> rows, float* x, float* y) {
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    arrived.fetch_add(1);
    while (arrived.load() < kLanes) std::this_thread::yield();
    data.read(rows, x, y);
  };
  executor.gradient({.samples = ids, .reader = &reader});
  EXPECT_EQ(threads.size(), static_cast<size_t>(kLanes));
}

TEST(Seeds, GiveOtherBits) {
  const data::Dataset data =
      data::synthetic({.samples = 100, .features = {12, 12, 1}, .classes = 10}).cached();
  std::set<std::string> hashes;
  for (const uint64_t seed : {1, 2, 3}) {
    Trainer trainer(cnn(), {.loss = softmax_cross_entropy(), .seed = seed, .lanes = 2});
    trainer.fit(data, {.batch = 20});
    hashes.insert(trainer.weights_sha256());
  }
  EXPECT_EQ(hashes.size(), 3u);
}

#endif  // STARLING_SWAPPED_TREE

}  // namespace
}  // namespace starling
