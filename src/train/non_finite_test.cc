// Losses and gradients that are not finite: training ends and says where, or leaves the step out.
#include <set>

#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainerOptions policy_options(Optimizer optimizer, NonFinite policy,
                              LossPtr loss = softmax_cross_entropy()) {
  return {.optimizer = optimizer, .loss = loss, .seed = 3, .lanes = 2, .non_finite = policy};
}

TEST(NonFinite, StopNamesTheStepAndTheLayer) {
  Trainer trainer(small_mlp(), policy_options(sgd(1e30), NonFinite::kStop));
  const Error error = error_of([&] { trainer.fit(small_data(40).cached(), {.batch = 8}); });
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("step 2"), HasSubstr("loss"), HasSubstr("layer dense_2")));
  EXPECT_THAT(error.hint(), HasSubstr("learning rate"));
  EXPECT_EQ(error.exit_code(), 1);
}

// Four samples with one feature; the third has this value.
data::Dataset with_third(float value) {
  return data::in_memory({0.5f, 1, value, -1}, {1}, {1, 2, 0, -2});
}

// The loss of the third sample, (1.5e19)², is near the end of f32; its gradient, twice as large, is
// beyond it.
TEST(NonFinite, StopNamesTheParameterWhoseGradientOverflows) {
  for (const Optimizer& optimizer : {sgd(1e-3), sgd(1e-3, {.clip_norm = 1.0})}) {
    Trainer trainer(Sequential({1}, {dense(1, linear, {.bias = false}), dense(1)}),
                    policy_options(optimizer, NonFinite::kStop, mean_squared_error()));
    trainer.weights("dense_1.weight")[0] = 1;
    trainer.weights("dense_2.weight")[0] = 1;
    const Error error =
        error_of([&] { trainer.fit(with_third(1.5e19f), {.batch = 1, .shuffle = false}); });
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("step 3"), HasSubstr("gradient"), HasSubstr("dense_2.weight")));
  }
}

// One parameter's gradient overflows, those before and behind it are finite: a step happens as a
// whole or not at all.
TEST(NonFinite, StopLeavesTheWeightsOfTheStepBefore) {
  for (const Optimizer& optimizer : {sgd(1e-3), momentum(1e-3), adam(1e-3)}) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      for (const int shards : {1, 2}) {
        TrainerOptions all = policy_options(optimizer, NonFinite::kStop, mean_squared_error());
        all.precision = precision;
        all.shards = shards;
        Trainer trainer(Sequential({1}, {dense(1, linear, {.bias = false}), dense(1)}), all);
        trainer.weights("dense_1.weight")[0] = 1;
        trainer.weights("dense_2.weight")[0] = 1;
        std::string before;
        const Error error = error_of([&] {
          trainer.fit(with_third(1.5e19f),
                      {.batch = 1, .shuffle = false, .on_step = [&](const Progress&) {
                         before = trainer.weights_sha256();
                       }});
        });
        EXPECT_THAT(error.what(), HasSubstr("step 3"));
        EXPECT_EQ(trainer.weights_sha256(), before) << precision_name(precision);
      }
    }
  }
}

// The same for a gradient that is computed only while weights are updated (engine/late_layout.h).
// One feature of the third sample is so large that the gradient of its weights overflows, and as
// they are zero nothing else does.
TEST(NonFinite, StopLeavesTheWeightsOfTheStepBeforeWhereGradientsAreLate) {
  constexpr int64_t kFeatures = 1024, kUnits = 300;
  std::vector<float> features(3 * kFeatures, 0.5f), labels{0, 1, 2};
  features[5] = features[kFeatures + 5] = 0;
  features[2 * kFeatures + 5] = 3e38f;
  for (const Optimizer& optimizer : {momentum(1e-3), adam(1e-3, {.clip_norm = 1.0})}) {
    for (const int lanes : {1, 2}) {
      TrainerOptions all = policy_options(optimizer, NonFinite::kStop, mean_squared_error());
      all.lanes = lanes;
      Trainer trainer(Sequential({kFeatures}, {dense(kUnits), dense(1)}), all);
      for (int64_t unit = 0; unit < kUnits; ++unit)
        trainer.weights("dense_1.weight")[static_cast<size_t>(unit * kFeatures + 5)] = 0;
      for (float& weight : trainer.weights("dense_2.weight")) weight *= 100;
      std::string before;
      const Error error = error_of([&] {
        trainer.fit(data::in_memory(features, {kFeatures}, labels),
                    {.batch = 1, .shuffle = false, .on_step = [&](const Progress&) {
                       before = trainer.weights_sha256();
                     }});
      });
      EXPECT_THAT(error.what(), AllOf(HasSubstr("step 3"), HasSubstr("dense_1.weight")));
      EXPECT_EQ(trainer.weights_sha256(), before);
    }
  }
}

TEST(NonFinite, SkipLeavesTheWeightsAndCounts) {
  for (const Optimizer& optimizer : {sgd(1e-2), momentum(1e-2), adam(1e-2, {.clip_norm = 1.0})}) {
    for (const float value : {1.5e19f, 1e30f}) {  // the gradient alone, and the loss
      Trainer trainer(Sequential({1}, {dense(1)}),
                      policy_options(optimizer, NonFinite::kSkip, mean_squared_error()));
      trainer.weights("dense_1.weight")[0] = 1;
      std::vector<std::string> hashes{trainer.weights_sha256()}, notes;
      const History history = trainer.fit(
          with_third(value),
          {.epochs = 2,
           .batch = 1,
           .shuffle = false,
           .on_step = [&](const Progress&) { hashes.push_back(trainer.weights_sha256()); },
           .on_note = [&](const std::string& note) { notes.push_back(note); }});
      ASSERT_EQ(hashes.size(), 9u);
      for (const size_t step : {1, 2, 3, 4, 5, 6, 7, 8})
        EXPECT_EQ(hashes[step] == hashes[step - 1], step % 4 == 3) << "step " << step;
      EXPECT_EQ(trainer.summary().skipped_steps, 2u);
      EXPECT_THAT(notes,
                  testing::Contains(AllOf(HasSubstr("epoch 1 step 3"), HasSubstr("skipped"))));
      EXPECT_TRUE(std::isfinite(history.epochs()[1].value("train_loss")))
          << "the mean is over what was not skipped";
      EXPECT_EQ(trainer.summary().samples_unique, 8u)
          << "skipped samples were computed all the same";
      EXPECT_THAT(history.column("step"), testing::ElementsAre(4, 8)) << "a skipped step is a step";
      EXPECT_THAT(trainer.fit(with_third(value), {.batch = 1}).column("step"),
                  testing::ElementsAre(12));
    }
  }
}

// A skipped step does not count as an update: Adam's correction of its first steps goes by updates.
TEST(NonFinite, RunWithSkippedStepsIsTheRunWithoutThem) {
  const data::Dataset bad = data::in_memory({1e30f, 0.5f, 1, -1}, {1}, {0, 1, 2, -2});
  Trainer skipping(Sequential({1}, {dense(1)}),
                   policy_options(adam(1e-2), NonFinite::kSkip, mean_squared_error()));
  Trainer without(Sequential({1}, {dense(1)}),
                  policy_options(adam(1e-2), NonFinite::kSkip, mean_squared_error()));
  skipping.fit(bad, {.batch = 1, .shuffle = false});
  without.fit(bad.skip(1), {.batch = 1, .shuffle = false});
  EXPECT_EQ(skipping.summary().skipped_steps, 1u);
  EXPECT_EQ(skipping.weights_sha256(), without.weights_sha256());
}

TEST(NonFinite, SkipLeavesRunningStatistics) {
  const Sequential model({2}, {batch_norm(), dense(1)});
  std::vector<float> features{1, 2, 3, 5, 9, 0, 0, 7};
  const data::Dataset data = data::in_memory(features, {2}, {1, 2, 1e30f, 1});
  Trainer trainer(model, policy_options(sgd(1e-2), NonFinite::kSkip, mean_squared_error()));
  std::vector<std::vector<float>> states;
  trainer.fit(data, {.batch = 2, .shuffle = false, .on_step = [&](const Progress&) {
                       states.push_back(trainer.snapshot());
                     }});
  ASSERT_EQ(trainer.summary().skipped_steps, 1u);
  EXPECT_EQ(states[0], states[1]);
}

}  // namespace
}  // namespace starling
