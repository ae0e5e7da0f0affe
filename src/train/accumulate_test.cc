// Steps of several batches.
#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Outcome {
  std::string hash;
  std::vector<float> weights;
  std::vector<float> predictions;
  History history;
  FitSummary summary;
};

struct Setting {
  Model model = small_mlp();
  uint64_t samples = 50;
  uint64_t batch = 8;
  uint64_t accumulate = 1;
  int lanes = 1;
  int shards = 4;
  Optimizer optimizer = sgd(0.1);
  bool cached = true;
};

Outcome train(const Setting& s) {
  const data::Dataset data = small_data(s.samples);
  Trainer trainer(s.model, {.optimizer = s.optimizer,
                            .loss = softmax_cross_entropy(),
                            .seed = 5,
                            .lanes = s.lanes,
                            .shards = s.shards});
  Outcome outcome;
  outcome.history = without_times(
      trainer.fit(s.cached ? data.cached() : data,
                  {.epochs = 2, .batch = s.batch, .accumulate = s.accumulate, .validation = data}));
  outcome.hash = trainer.weights_sha256();
  outcome.weights = trainer.snapshot();
  outcome.predictions = trainer.predict(data);
  outcome.summary = trainer.summary();
  return outcome;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 2e-5f + 2e-5f * std::fabs(expected[i])) << "at " << i;
}

// 44 samples: steps of 8 + 8 + 8 and 8 + 8 + 4; 50: the last has 2 samples; 52: 4, one to a shard.
TEST(Accumulate, BatchesGiveTheStepsOfOneLargeBatch) {
  const Model cnn = Sequential({6, 6, 1}, {conv2d(8, 3, relu), max_pool2d(2), dropout(0.2f),
                                           flatten(), dense(12, tanh), dense(4)});
  for (const Model& model : {small_mlp(), cnn}) {
    for (const uint64_t samples : {44, 50, 52}) {
      for (const Optimizer& optimizer :
           {sgd(0.1), sgd(1.0, {.clip_norm = 0.05}),
            momentum(0.1, {.schedule = cosine({.warmup_steps = 2})})}) {
        SCOPED_TRACE(samples);
        const Setting several{
            .model = model, .samples = samples, .accumulate = 3, .optimizer = optimizer};
        Setting one = several;
        one.batch = 24;
        one.accumulate = 1;
        const Outcome actual = train(several), expected = train(one);
        expect_near(actual.weights, expected.weights);
        EXPECT_EQ(actual.summary.steps, expected.summary.steps);
        EXPECT_NEAR(actual.history.epochs()[1].value("train_loss"),
                    expected.history.epochs()[1].value("train_loss"), 1e-4);
      }
    }
  }
}

TEST(Accumulate, LanesAndPrefetchDoNotChangeTheBits) {
  // Shards of the dense model could be computed together; batch_norm's moments are of all batches.
  for (const Model& model : {small_mlp(), small_cnn()}) {
    for (const uint64_t samples : {44, 48, 50}) {
      const Setting setting{.model = model,
                            .samples = samples,
                            .accumulate = 3,
                            .optimizer = adam(1e-2, {.clip_norm = 0.5})};
      const Outcome expected = train(setting);
      for (const int lanes : {2, 3}) {
        Setting other = setting;
        other.lanes = lanes;
        other.cached = lanes == 2;
        const Outcome actual = train(other);
        EXPECT_EQ(actual.hash, expected.hash) << lanes << " lanes";
        EXPECT_EQ(actual.predictions, expected.predictions) << lanes << " lanes";
        EXPECT_EQ(actual.history, expected.history) << lanes << " lanes";
      }
    }
  }
}

// Of 16 shards, a batch of 10 leaves some without a sample that one of 3 does not.
TEST(Accumulate, ShardsMayBeginInALaterBatch) {
  const Setting setting{.samples = 13, .batch = 10, .accumulate = 2, .shards = 16};
  Setting one = setting, lanes = setting;
  one.batch = 13;
  one.accumulate = 1;
  lanes.lanes = 3;
  const Outcome actual = train(setting);
  expect_near(actual.weights, train(one).weights);
  EXPECT_EQ(actual.hash, train(lanes).hash);
  EXPECT_EQ(actual.summary.samples_unique, 26u);
}

TEST(Accumulate, MoreBatchesThanAnEpochHasMakeOneStep) {
  const Outcome actual = train({.accumulate = 1000}), expected = train({.batch = 50});
  EXPECT_EQ(actual.summary.steps, 2u);
  expect_near(actual.weights, expected.weights);
}

TEST(Accumulate, StepsAreWhatIsCountedAndTold) {
  Trainer trainer(small_mlp(), {.loss = softmax_cross_entropy(), .lanes = 1, .shards = 4});
  std::vector<uint64_t> steps, samples;
  uint64_t asked = 0;
  const History history =
      trainer.fit(small_data(50).cached(), {.epochs = 2,
                                            .batch = 8,
                                            .accumulate = 3,
                                            .on_step =
                                                [&](const Progress& progress) {
                                                  steps.push_back(progress.step_in_epoch);
                                                  samples.push_back(progress.samples);
                                                  EXPECT_EQ(progress.steps_per_epoch, 3u);
                                                },
                                            .should_stop = [&] { return ++asked > 100; }});
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(samples, ElementsAre(24, 48, 50, 74, 98, 100));
  EXPECT_EQ(asked, 6u);
  EXPECT_THAT(history.column("step"), ElementsAre(3, 6));
  EXPECT_EQ(trainer.summary().steps, 6u);
  EXPECT_EQ(trainer.summary().samples, 100u);
  EXPECT_EQ(trainer.summary().samples_unique, 100u);
  EXPECT_EQ(trainer.summary().samples_missing, 0u);
}

TEST(Accumulate, ABadBatchSpoilsItsWholeStep) {
  const data::Dataset data = data::in_memory({0.5f, 1, 1e30f, -1, 2, 3}, {1}, {1, 2, 0, -2, 1, 1});
  const TrainerOptions options{.optimizer = sgd(1e-2), .loss = mean_squared_error(), .lanes = 1};
  for (const NonFinite policy : {NonFinite::kSkip, NonFinite::kStop}) {
    for (const bool cached : {false, true}) {
      TrainerOptions with = options;
      with.non_finite = policy;
      Trainer trainer(Sequential({1}, {dense(1)}), with);
      std::vector<std::string> hashes{trainer.weights_sha256()};
      const auto fit = [&] {
        trainer.fit(
            cached ? data.cached() : data,
            {.batch = 1, .accumulate = 2, .shuffle = false, .on_step = [&](const Progress&) {
               hashes.push_back(trainer.weights_sha256());
             }});
      };
      if (policy == NonFinite::kStop) {
        EXPECT_THAT(error_of(fit).what(),
                    AllOf(HasSubstr("step 2: the loss"), HasSubstr("comes out of")));
        EXPECT_EQ(trainer.weights_sha256(), hashes.back());
        continue;
      }
      fit();
      ASSERT_EQ(hashes.size(), 4u);
      EXPECT_NE(hashes[1], hashes[0]);
      EXPECT_EQ(hashes[2], hashes[1]);
      EXPECT_NE(hashes[3], hashes[2]);
      EXPECT_EQ(trainer.summary().skipped_steps, 1u);
    }
  }
}

TEST(Accumulate, NoBatchesAreRefused) {
  Trainer trainer(small_mlp(), {.loss = softmax_cross_entropy()});
  for (const uint64_t accumulate : {uint64_t{0}, UINT64_MAX}) {
    EXPECT_THAT(error_of([&] {
                  trainer.fit(small_data(10), {.batch = 2, .accumulate = accumulate});
                }).what(),
                HasSubstr("accumulate"));
  }
}

}  // namespace
}  // namespace starling
