// Training, evaluation and prediction through the public interface.
#include <algorithm>

#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainerOptions with(Optimizer optimizer, int lanes = 2) {
  return {.optimizer = optimizer, .loss = softmax_cross_entropy(), .seed = 5, .lanes = lanes};
}

TEST(Fit, Learns) {
  const auto [train, test] = small_data(400).cached().split(0.25, 1);
  for (const Optimizer& optimizer :
       {sgd(0.1), momentum(0.02), nesterov(0.02), adam(1e-2), adamw(1e-2)}) {
    for (const Model& model : {small_mlp(), small_cnn()}) {
      Trainer trainer(model, with(optimizer));
      const double before = trainer.evaluate(test)["loss"];
      const History history = trainer.fit(train, {.epochs = 12, .batch = 16, .validation = test});
      const std::vector<double> losses = history.column("train_loss");
      EXPECT_LT(losses.back(), 0.7 * losses.front()) << optimizer_name(optimizer.kind);
      EXPECT_LT(history.epochs().back().value("val_loss"), 0.8 * before)
          << optimizer_name(optimizer.kind);
      EXPECT_GT(history.epochs().back().value("val_accuracy"), 0.7)
          << optimizer_name(optimizer.kind);
    }
  }
}

TEST(Fit, LearnsARegression) {
  const auto [train, test] =
      data::synthetic_regression({.samples = 400, .features = {8}}).cached().split(0.25, 1);
  Trainer trainer(
      Sequential({8}, {dense(1)}),
      {.optimizer = adam(0.02), .loss = mean_squared_error(), .metrics = {absolute_error()}});
  trainer.fit(train, {.epochs = 15, .batch = 16});
  EXPECT_LT(trainer.evaluate(test)["loss"], 0.03);
  EXPECT_LT(trainer.evaluate(test)["absolute_error"], 0.15);
}

TEST(Fit, HistoryHasTheColumnsItPromises) {
  const data::Dataset data = small_data(40).cached();
  Trainer trainer(small_mlp(), {.optimizer = adam(1e-3),
                                .loss = softmax_cross_entropy(),
                                .metrics = {accuracy(), top_k(2)}});
  std::vector<EpochRecord> told;
  const History history = trainer.fit(
      data,
      {.epochs = 2, .batch = 16, .validation = data, .on_epoch = [&](const EpochRecord& record) {
         told.push_back(record);
       }});
  EXPECT_THAT(history.names(),
              ElementsAre("train_loss", "train_accuracy", "train_top_2", "val_loss", "val_accuracy",
                          "val_top_2", "learning_rate", "samples_per_s"));
  EXPECT_EQ(told, history.epochs());
  EXPECT_EQ(history.column("epoch"), (std::vector<double>{1, 2}));
  EXPECT_EQ(history.column("step"), (std::vector<double>{3, 6}));
  EXPECT_EQ(history.column("samples"), (std::vector<double>{40, 80}));
  for (const EpochRecord& epoch : history.epochs()) {
    EXPECT_GT(epoch.train_seconds, 0);
    EXPECT_LE(epoch.train_seconds, epoch.seconds);
    EXPECT_EQ(epoch.bytes_sent, 0u) << "one process sends nothing";
    EXPECT_EQ(epoch.value("learning_rate"), 1e-3);
    EXPECT_GT(epoch.value("samples_per_s"), 0);
    EXPECT_GT(epoch.seconds, 0);
  }
  const History without = trainer.fit(data, {.batch = 16});
  EXPECT_THAT(without.names(), ElementsAre("train_loss", "train_accuracy", "train_top_2",
                                           "learning_rate", "samples_per_s"));
  EXPECT_EQ(without.epochs()[0].epoch, 3u) << "a second fit goes on counting";
}

TEST(Fit, LearningRateOfTheHistoryIsThatOfTheLastStep) {
  const Optimizer optimizer = adam(1e-2, {.schedule = cosine({.warmup_steps = 2})});
  Trainer trainer(small_mlp(), with(optimizer));
  const History history = trainer.fit(small_data(40).cached(), {.epochs = 3, .batch = 16});
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(history.epochs()[epoch].value("learning_rate"), rate(optimizer, 3 * epoch + 2, 9));
  }
}

TEST(Fit, EvaluateGivesTheLastValidationValues) {
  const auto [train, test] = small_data(100).cached().split(0.3, 1);
  Trainer trainer(small_cnn(), with(adam(1e-2)));
  const EpochRecord last =
      trainer.fit(train, {.epochs = 2, .batch = 16, .validation = test}).epochs().back();
  const Evaluation evaluation = trainer.evaluate(test);
  EXPECT_EQ(evaluation.samples, test.size());
  EXPECT_EQ(evaluation["loss"], last.value("val_loss"));
  EXPECT_EQ(evaluation["accuracy"], last.value("val_accuracy"));
  EXPECT_THROW(evaluation["recall"], Error);
}

TEST(Fit, PredictionsHaveTheAccuracyThatEvaluateTells) {
  const data::Dataset data = small_data(77);
  Trainer trainer(small_cnn(), with(adam(1e-2)));
  trainer.fit(data, {.epochs = 2, .batch = 16});
  std::vector<uint64_t> ids(data.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  std::vector<float> features(data.size() * 36), labels(data.size());
  data.read(ids, features.data(), labels.data());
  const std::vector<float> outputs = trainer.predict(features);
  ASSERT_EQ(outputs.size(), data.size() * 4);
  uint64_t right = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = outputs.begin() + static_cast<std::ptrdiff_t>(4 * i);
    right += std::max_element(row, row + 4) - row == static_cast<std::ptrdiff_t>(labels[i]);
  }
  EXPECT_EQ(static_cast<double>(right) / static_cast<double>(data.size()),
            trainer.evaluate(data)["accuracy"]);
  EXPECT_EQ(trainer.predict(data), outputs);
  EXPECT_TRUE(trainer.predict(std::span<const float>()).empty());
  EXPECT_THAT(error_of([&] { trainer.predict(std::vector<float>(37)); }).what(),
              HasSubstr("6×6×1"));
}

// Cached data is read by the lanes, other data by a thread that reads ahead.
TEST(Fit, PrefetchedDataGivesTheSameBits) {
  const data::Dataset slow = small_data(75), quick = slow.cached();
  ASSERT_TRUE(quick.cheap());
  ASSERT_FALSE(slow.cheap());
  std::vector<std::string> hashes;
  std::vector<History> histories;
  for (const data::Dataset& data : {slow, quick}) {
    Trainer trainer(small_cnn(), with(momentum(0.05)));
    histories.push_back(
        without_times(trainer.fit(data, {.epochs = 3, .batch = 16, .validation = data})));
    hashes.push_back(trainer.weights_sha256());
    EXPECT_EQ(trainer.summary().samples_unique, 225u);
    EXPECT_EQ(trainer.summary().samples_missing + trainer.summary().samples_duplicated, 0u);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(histories[0], histories[1]);
}

TEST(Fit, TellsProgressAfterEveryStep) {
  const data::Dataset data = small_data(40).cached();
  Trainer trainer(small_mlp(), with(adam(1e-3)));
  std::vector<Progress> told;
  const History history = trainer.fit(
      data, {.epochs = 2, .batch = 16, .on_step = [&](const Progress& p) { told.push_back(p); }});
  ASSERT_EQ(told.size(), 6u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].epoch, i / 3 + 1);
    EXPECT_EQ(told[i].epochs, 2u);
    EXPECT_EQ(told[i].step_in_epoch, i % 3 + 1);
    EXPECT_EQ(told[i].steps_per_epoch, 3u);
  }
  EXPECT_EQ(told[1].samples, 32u);
  EXPECT_EQ(told[5].samples, 80u);
  EXPECT_EQ(told[2].loss, history.epochs()[0].value("train_loss"));
  ASSERT_EQ(told[2].metrics.size(), 1u);
  EXPECT_EQ(told[2].metrics[0].first, "accuracy");
  EXPECT_EQ(told[2].metrics[0].second, history.epochs()[0].value("train_accuracy"));
}

TEST(Fit, TwoFitsAreOneLongerOne) {
  const data::Dataset data = small_data(50).cached();
  Trainer once(small_cnn(), with(adam(1e-2))), twice(small_cnn(), with(adam(1e-2)));
  once.fit(data, {.epochs = 3, .batch = 16});
  twice.fit(data, {.epochs = 1, .batch = 16});
  twice.fit(data, {.epochs = 2, .batch = 16});
  EXPECT_EQ(once.weights_sha256(), twice.weights_sha256());
}

TEST(Fit, NotesLanesWithoutWork) {
  Trainer trainer(
      small_mlp(),
      {.optimizer = sgd(0.1), .loss = softmax_cross_entropy(), .lanes = 3, .shards = 2});
  std::vector<std::string> notes;
  trainer.fit(small_data(20).cached(),
              {.batch = 8, .on_note = [&](const std::string& note) { notes.push_back(note); }});
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 of 3 lanes have no work")));
}

TEST_F(FitTest, LedgerProvesEveryEpoch) {
  Trainer trainer(small_mlp(), with(sgd(0.1)));
  trainer.fit(small_data(21).cached(),
              {.epochs = 2, .batch = 8, .ledger = folder_ / "ledger.jsonl"});
  const std::string text = content(folder_ / "ledger.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("\"unique\": 21"));
}

// --- what is refused

TEST(FitRefuses, LabelsOutOfRange) {
  const data::Dataset bad = small_data(40).cached().map([](const data::Sample& s) {
    if (s.id == 17) s.label[0] = 4;
  });
  for (const data::Dataset& data : {bad, bad.cached()}) {
    Trainer trainer(small_mlp(), with(sgd(0.1)));
    for (const Error& error : {error_of([&] { trainer.fit(data, {.batch = 8}); }),
                               error_of([&] { trainer.evaluate(data); })}) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("label 4"), HasSubstr("sample 17"),
                                               HasSubstr("4 classes")));
      EXPECT_EQ(error.exit_code(), 2);
    }
    EXPECT_EQ(trainer.predict(data).size(), 160u) << "a prediction needs no labels";
  }
}

TEST(FitRefuses, DataThatIsNotFinite) {
  const data::Dataset bad = small_data(40).map([](const data::Sample& s) {
    if (s.id == 21) s.features[3] = std::numeric_limits<float>::quiet_NaN();
  });
  Trainer trainer(small_mlp(), with(sgd(0.1)));
  EXPECT_THAT(error_of([&] { trainer.fit(bad, {.batch = 8}); }).what(), HasSubstr("sample 21"));
  EXPECT_THAT(error_of([&] { trainer.evaluate(bad); }).what(), HasSubstr("sample 21"));
  EXPECT_NO_THROW(trainer.fit(bad.take(20), {.batch = 8})) << "an error leaves the trainer usable";
}

TEST(FitRefuses, ShapesThatDoNotFit) {
  Trainer trainer(small_mlp(), with(sgd(0.1)));
  const data::Dataset flat = data::synthetic({.samples = 10, .features = {36}, .classes = 4});
  for (const Error& error :
       {error_of([&] { trainer.fit(flat, {}); }), error_of([&] { trainer.evaluate(flat); }),
        error_of([&] { trainer.predict(flat); }),
        error_of([&] { trainer.fit(small_data(10), {.validation = flat}); })}) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("6×6×1"), HasSubstr("36")));
  }
  const data::Dataset pairs = data::in_memory(std::vector<float>(36), {6, 6, 1}, {0, 1}, {2});
  EXPECT_THAT(error_of([&] { trainer.fit(pairs, {}); }).what(),
              testing::AllOf(HasSubstr("labels of shape 1"), HasSubstr("are 2")));
  EXPECT_THROW(trainer.fit({}, {}), Error);
  EXPECT_EQ(trainer.predict(pairs).size(), 4u);
}

TEST(FitRefuses, NumbersOutOfRange) {
  Trainer trainer(small_mlp(), with(sgd(0.1)));
  EXPECT_THAT(error_of([&] { trainer.fit(small_data(10), {.epochs = 0}); }).what(),
              HasSubstr("epochs"));
  EXPECT_THAT(error_of([&] { trainer.fit(small_data(10), {.batch = 0}); }).what(),
              HasSubstr("batch"));
  const auto make = [](TrainerOptions options) {
    return error_of([&] { Trainer(small_mlp(), options); });
  };
  const LossPtr loss = softmax_cross_entropy();
  EXPECT_THAT(make({.loss = loss, .lanes = -1}).what(), HasSubstr("lanes = -1"));
  EXPECT_THAT(make({.loss = loss, .lanes = 100000}).what(), HasSubstr("lanes"));
  EXPECT_THAT(make({.loss = loss, .shards = -2}).what(), HasSubstr("shards = -2"));
  EXPECT_THAT(make({.loss = loss, .micro_batch = -3}).what(), HasSubstr("micro_batch = -3"));
  EXPECT_THAT(make({}).what(), HasSubstr("loss"));
  Optimizer bad = sgd(0.1);
  bad.learning_rate = -1;
  EXPECT_THAT(make({.optimizer = bad, .loss = loss}).what(), HasSubstr("learning_rate"));
}

TEST(FitRefuses, AnOutputThatDoesNotFitTheLoss) {
  const Sequential image({6, 6, 1}, {conv2d(4, 3)});
  EXPECT_THAT(error_of([&] { Trainer(image, with(sgd(0.1))); }).what(), HasSubstr("4×4×4"));
}

}  // namespace
}  // namespace starling
