// `sharded` with workers as threads of one process, over tcp: what it does with numbers that are
// not finite, and with trainers that fit more than once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/starling.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

TrainerOptions sharded_options(const Cluster& cluster, const Optimizer& optimizer, LossPtr loss) {
  return {.optimizer = optimizer,
          .loss = std::move(loss),
          .lanes = 1,
          .shards = 4,
          .cluster = cluster,
          .strategy = {.name = "sharded"}};
}

// The gradients of the two samples are finite, and their sum is not: no flag of the processor tells
// of it before the update.
TEST(Sharded, ASumThatOverflowsChangesNothing) {
  const data::Dataset data = data::in_memory({1.6e19f, 1.6e19f}, {1}, {0, 0});
  const auto errors = run_workers(2, [&](const std::shared_ptr<World>& world) {
    TrainerOptions settings = sharded_options(Cluster(world), momentum(1e-3), mean_squared_error());
    settings.shards = 2;
    Trainer trainer(Sequential({1}, {dense(1, linear, {.bias = false})}), settings);
    trainer.weights("dense_1.weight")[0] = 1;
    try {
      trainer.fit(data, {.batch = 2});
    } catch (const Error&) {
      EXPECT_EQ(trainer.weights("dense_1.weight")[0], 1);
      throw;
    }
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error, "step 1: the gradient of dense_1.weight is not finite");
}

TEST(Sharded, SkippedStepsAreSkippedByAll) {
  const data::Dataset data = data::in_memory({1, 2, 1e30f, -1}, {1}, {1, 2, 0, -2});
  const auto hash_of = [&](const Cluster& cluster) {
    TrainerOptions settings = sharded_options(cluster, adam(1e-3), mean_squared_error());
    settings.shards = 2;
    settings.non_finite = NonFinite::kSkip;
    Trainer trainer(Sequential({1}, {dense(1), dense(1)}), settings);
    trainer.fit(data, {.epochs = 3, .batch = 2, .shuffle = false});
    EXPECT_EQ(trainer.summary().skipped_steps, 3u);
    return trainer.weights_sha256();
  };
  const std::string alone = hash_of(Cluster());
  for (const std::string& error : run_workers(2, [&](const std::shared_ptr<World>& world) {
         EXPECT_EQ(hash_of(Cluster(world)), alone);
       })) {
    EXPECT_EQ(error, "");
  }
}

TEST(Sharded, TheStateStaysFromOneFitToTheNext) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  const auto hash_of = [&](const Cluster& cluster) {
    Trainer trainer(Sequential({6}, {dense(3000, relu), dense(3)}),
                    sharded_options(cluster, adam(1e-2), softmax_cross_entropy()));
    trainer.fit(data, {.batch = 16});
    trainer.fit(data, {.epochs = 2, .batch = 16});
    return trainer.weights_sha256();
  };
  const std::string alone = hash_of(Cluster());
  for (const std::string& error : run_workers(3, [&](const std::shared_ptr<World>& world) {
         EXPECT_EQ(hash_of(Cluster(world)), alone);
       })) {
    EXPECT_EQ(error, "");
  }
}

TEST(Sharded, ReplicasOutOfRangeAreRefused) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  for (const std::string& error : run_workers(2, [&](const std::shared_ptr<World>& world) {
         TrainerOptions settings =
             sharded_options(Cluster(world), adam(1e-2), softmax_cross_entropy());
         settings.strategy.replicas = 2;
         Trainer(Sequential({6}, {dense(3)}), settings).fit(data, {.batch = 16});
       })) {
    EXPECT_EQ(error, "strategy.replicas = 2 is out of range");
  }
}

TEST(Sharded, NoWorkerHasRoomForTheWholeState) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  for (const int replicas : {0, 1}) {
    const auto errors = run_workers(4, [&](const std::shared_ptr<World>& world) {
      TrainerOptions settings =
          sharded_options(Cluster(world), adam(1e-2), softmax_cross_entropy());
      settings.strategy.replicas = replicas;
      Trainer trainer(Sequential({6}, {dense(12000, relu), dense(3)}), settings);
      EXPECT_EQ(trainer.memory().optimizer, 0u) << "before the first fit";
      trainer.fit(data, {.batch = 16});
      const double whole = 2.0 * static_cast<double>(trainer.memory().weights);
      EXPECT_NEAR(static_cast<double>(trainer.memory().optimizer), whole * (1 + replicas) / 4,
                  0.06 * whole);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

}  // namespace
}  // namespace starling
