#include <gtest/gtest.h>

#include "starling/starling.h"

namespace starling {
namespace {

TEST(DefaultShards, FollowTheTable) {
  struct Row {
    uint64_t batch;
    int64_t parameters;
    int shards;
  };
  constexpr int64_t kSmall = 64 * 1024, kLarge = kSmall + 1;
  for (const Row& row :
       {// Small models: 8, or as many as the batch has samples, rounded down to a power of two.
        Row{1, 10, 1}, Row{2, 10, 2}, Row{3, 10, 2}, Row{7, 10, 4}, Row{8, 10, 8}, Row{64, 0, 8},
        Row{64, kSmall, 8}, Row{4096, kSmall, 8},
        // Large ones: one for every 32 samples, at least 2 and at most 16.
        Row{1, kLarge, 1}, Row{2, kLarge, 2}, Row{32, kLarge, 2}, Row{64, kLarge, 2},
        Row{127, kLarge, 2}, Row{128, kLarge, 4}, Row{255, kLarge, 4}, Row{256, kLarge, 8},
        Row{512, 100'000'000, 16}, Row{100'000, 100'000'000, 16}}) {
    EXPECT_EQ(default_shards(row.batch, row.parameters), row.shards)
        << "batch " << row.batch << ", " << row.parameters << " parameters";
  }
}

TEST(DefaultShards, AreAPowerOfTwoWithinTheBatch) {
  for (uint64_t batch = 1; batch < 700; ++batch) {
    for (const int64_t parameters : {1, 65536, 65537, 50'000'000}) {
      const int shards = default_shards(batch, parameters);
      EXPECT_EQ(shards & (shards - 1), 0);
      EXPECT_GE(shards, 1);
      EXPECT_LE(static_cast<uint64_t>(shards), batch);
      EXPECT_EQ(default_shards(batch, parameters), shards);
    }
  }
}

TEST(DefaultMicroBatch, FollowsTheModel) {
  // Small activations: as many rows as are of use.
  EXPECT_EQ(default_micro_batch(Sequential({100}, {dense(10)})), 256);
  // 54,874 activations: eight rows of them stay within 512 Ki floats.
  EXPECT_EQ(default_micro_batch(Sequential(
                {28, 28, 1}, {conv2d(32, 3, relu), max_pool2d(2), flatten(), dense(10)})),
            8);
  // Activations beyond the cache with hardly any weights: row by row.
  EXPECT_EQ(default_micro_batch(Sequential({128, 128, 16}, {conv2d(16, 1), conv2d(16, 1)})), 1);
  // Many weights: rows that use each of them often enough.
  EXPECT_EQ(default_micro_batch(Sequential({784}, {dense(512, relu), dense(10)})), 256);
}

TEST(DefaultShardsAndMicroBatch, AreWhatATrainerUses) {
  const Sequential model({36}, {dense(16, relu), dense(4)});
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {36}, .classes = 4}).cached();
  for (const int lanes : {1, 3}) {
    Trainer trainer(model, {.loss = softmax_cross_entropy(), .lanes = lanes});
    trainer.fit(data, {.batch = 6});
    EXPECT_EQ(trainer.shards(), default_shards(6, model.parameter_count()));
    EXPECT_EQ(trainer.micro_batch(), default_micro_batch(model));
    EXPECT_EQ(trainer.lanes(), lanes);
  }
  Trainer set(model, {.loss = softmax_cross_entropy(), .shards = 3, .micro_batch = 5});
  set.fit(data, {.batch = 6});
  EXPECT_EQ(set.shards(), 3);
  EXPECT_EQ(set.micro_batch(), 5);
}

}  // namespace
}  // namespace starling
