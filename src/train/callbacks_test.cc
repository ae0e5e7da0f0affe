#include <cmath>

#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainerOptions options(double learning_rate = 1e-2) {
  return {.optimizer = adam(learning_rate), .loss = softmax_cross_entropy(), .seed = 2, .lanes = 2};
}

// Much noise, few samples: a model that learns them by heart.
data::Dataset noisy(uint64_t samples, uint64_t first = 0) {
  return small_data(samples + first, 1, 4).skip(first).cached();
}

size_t best_epoch(const History& history) {
  const std::vector<double> losses = history.column("val_loss");
  return static_cast<size_t>(std::min_element(losses.begin(), losses.end()) - losses.begin());
}

TEST(EarlyStopping, EndsAndRestoresTheBestWeights) {
  const data::Dataset train = small_data(40, 1, 4).cached(), test = noisy(60, 40);
  std::vector<std::string> hashes;
  const auto remember = on_epoch_end([&](Trainer& trainer, const EpochRecord&) {
    hashes.push_back(trainer.weights_sha256());
    return true;
  });
  Trainer trainer(small_cnn(), options());
  const History history =
      trainer.fit(train, {.epochs = 60,
                          .batch = 8,
                          .validation = test,
                          .callbacks = {remember, early_stopping("val_loss", {.patience = 4})}});
  const size_t best = best_epoch(history);
  ASSERT_LT(history.size(), 60u);
  EXPECT_EQ(history.size(), best + 1 + 4);
  EXPECT_EQ(trainer.weights_sha256(), hashes[best]);
  EXPECT_EQ(trainer.evaluate(test)["loss"], history.epochs()[best].value("val_loss"))
      << "running statistics are restored too";
}

TEST(EarlyStopping, LeavesTheLastWeightsIfAsked) {
  const data::Dataset train = small_data(40, 1, 4).cached(), test = noisy(60, 40);
  Trainer trainer(small_cnn(), options());
  const History history = trainer.fit(
      train, {.epochs = 60,
              .batch = 8,
              .validation = test,
              .callbacks = {early_stopping("val_loss", {.patience = 2, .restore_best = false})}});
  ASSERT_LT(best_epoch(history) + 1, history.size());
  EXPECT_EQ(trainer.evaluate(test)["loss"], history.epochs().back().value("val_loss"));
}

TEST(EarlyStopping, MinDeltaSaysWhatIsBetter) {
  Trainer trainer(small_mlp(), options(1e-4));
  const data::Dataset data = small_data(40).cached();
  const History history = trainer.fit(
      data, {.epochs = 9,
             .batch = 8,
             .callbacks = {early_stopping("train_loss", {.patience = 2, .min_delta = 100})}});
  EXPECT_EQ(history.size(), 3u) << "the first epoch is better than nothing, two more are not";
  EXPECT_THROW(early_stopping("val_loss", {.patience = 0}), Error);
}

TEST(EarlyStopping, TakesAccuracyAsBetterWhenHigher) {
  Trainer trainer(small_mlp(), options());
  const data::Dataset data = small_data(60).cached();
  const History history = trainer.fit(
      data,
      {.epochs = 30, .batch = 8, .callbacks = {early_stopping("train_accuracy", {.patience = 3})}});
  const std::vector<double> accuracy = history.column("train_accuracy");
  const auto best = std::max_element(accuracy.begin(), accuracy.end());
  EXPECT_EQ(history.size(), static_cast<size_t>(best - accuracy.begin()) + 4);
}

TEST_F(FitTest, SaveBestWritesOnlyWhatIsBetter) {
  const data::Dataset train = small_data(40, 1, 4).cached(), test = noisy(60, 40);
  const auto path = folder_ / "best.safetensors";
  Trainer trainer(small_cnn(), options());
  std::string before;
  std::vector<bool> written;
  const auto watch = on_epoch_end([&](Trainer&, const EpochRecord&) {
    const std::string now = content(path);
    written.push_back(now != before);
    before = now;
    return true;
  });
  const History history = trainer.fit(train, {.epochs = 15,
                                              .batch = 8,
                                              .validation = test,
                                              .callbacks = {save_best(folder_ / "best"), watch}});
  double best = INFINITY;
  for (size_t i = 0; i < history.size(); ++i) {
    const double loss = history.epochs()[i].value("val_loss");
    EXPECT_EQ(written[i], loss < best) << "epoch " << i + 1;
    best = std::min(best, loss);
  }
  EXPECT_THAT(written, testing::Contains(false));
  Trainer loaded(small_cnn(), options());
  loaded.load(path);
  EXPECT_EQ(loaded.evaluate(test)["loss"], best);
}

TEST_F(FitTest, BestThatCannotBeSavedIsTriedAgain) {
  const data::Dataset train = small_data(40, 1, 4).cached();
  std::filesystem::create_directory(folder_ / "best.safetensors");  // no file can have its name
  std::vector<std::string> notes;
  double best = INFINITY;  // since there is room
  std::string of_best;
  const auto make_room = on_epoch_end([&](Trainer& trainer, const EpochRecord& record) {
    if (record.epoch == 3) std::filesystem::remove(folder_ / "best.safetensors");
    if (record.epoch > 3 && record.value("train_loss") < best) {
      best = record.value("train_loss");
      of_best = trainer.weights_sha256();
    }
    return true;
  });
  Trainer trainer(small_cnn(), options());
  trainer.fit(train,
              {.epochs = 6,
               .batch = 8,
               .callbacks = {save_best(folder_ / "best", {.value = "train_loss"}), make_room},
               .on_note = [&](const std::string& note) { notes.push_back(note); }});
  EXPECT_EQ(notes.size(), 3u);
  EXPECT_THAT(notes, testing::Each(testing::HasSubstr("the best weights were not saved")));
  Trainer loaded(small_cnn(), options());
  loaded.load(folder_ / "best.safetensors");
  EXPECT_EQ(loaded.weights_sha256(), of_best);
}

TEST(Callbacks, MayEndTraining) {
  Trainer trainer(small_mlp(), options());
  uint32_t told = 0;
  const auto stop =
      on_epoch_end([](Trainer&, const EpochRecord& record) { return record.epoch < 2; });
  const auto count = on_epoch_end([&](Trainer&, const EpochRecord&) { return ++told > 0; });
  const History history =
      trainer.fit(small_data(20).cached(), {.epochs = 5, .batch = 8, .callbacks = {stop, count}});
  EXPECT_EQ(history.size(), 2u);
  EXPECT_EQ(told, 2u) << "all of them are told of the last epoch";
  EXPECT_FALSE(trainer.summary().stopped);
}

TEST(Callbacks, RunInTheirOrder) {
  struct Recorder : Callback {
    Recorder(std::string n, std::vector<std::string>& l) : name(std::move(n)), log(l) {}
    void train_begin(Trainer&) override { log.push_back(name + " begin"); }
    bool epoch_end(Trainer&, const EpochRecord&) override {
      return log.push_back(name + " epoch"), true;
    }
    void train_end(Trainer&) override { log.push_back(name + " end"); }
    std::string name;
    std::vector<std::string>& log;
  };
  std::vector<std::string> log;
  Trainer trainer(small_mlp(), options());
  trainer.fit(small_data(20).cached(), {.batch = 8,
                                        .callbacks = {std::make_shared<Recorder>("a", log),
                                                      std::make_shared<Recorder>("b", log)}});
  EXPECT_THAT(log, ElementsAre("a begin", "b begin", "a epoch", "b epoch", "a end", "b end"));
}

TEST(Callbacks, UnknownValueIsRefusedWithTheKnownOnes) {
  Trainer trainer(small_mlp(), options());
  const Error error = error_of([&] {
    trainer.fit(small_data(20).cached(), {.batch = 8, .callbacks = {early_stopping("val_loss")}});
  });
  EXPECT_THAT(error.what(), HasSubstr("val_loss"));
  EXPECT_THAT(error.hint(),
              testing::AllOf(HasSubstr("train_loss, train_accuracy"), HasSubstr("validation")));
}

TEST(TimeLimit, EndsWithTheEpochInWhichItIsPassed) {
  const CallbackPtr limit = time_limit(1.0);
  Trainer trainer(small_mlp(), options());
  const EpochRecord epoch{.seconds = 100, .train_seconds = 0.4};  // evaluation does not count
  EXPECT_TRUE(limit->epoch_end(trainer, epoch));
  EXPECT_TRUE(limit->epoch_end(trainer, epoch));
  const CallbackState saved = limit->save();
  EXPECT_FALSE(limit->epoch_end(trainer, epoch));
  limit->reset();
  EXPECT_TRUE(limit->epoch_end(trainer, epoch));
  limit->restore(saved);
  EXPECT_FALSE(limit->epoch_end(trainer, epoch)) << "it goes on counting after a resume";
  EXPECT_THAT(refusal([] { time_limit(0); }), HasSubstr("0 seconds"));
}

// A validation loss can overflow while training does not: that is no improvement, and no mistake
// of the user's.
TEST(Callbacks, AValueThatIsNotANumberIsNoImprovement) {
  const auto stopping = early_stopping("val_loss", {.patience = 2});
  Trainer trainer(small_mlp(), options());
  EpochRecord record{.epoch = 1, .values = {{"val_loss", NAN}}};
  EXPECT_TRUE(stopping->epoch_end(trainer, record));
  record.values[0].second = 1;
  EXPECT_TRUE(stopping->epoch_end(trainer, record));
  record.values[0].second = NAN;
  EXPECT_TRUE(stopping->epoch_end(trainer, record));
  EXPECT_FALSE(stopping->epoch_end(trainer, record));
}

// The first fit's best weights and losses mean nothing to the second, on another model and data.
TEST_F(FitTest, CallbacksOfAnEarlierFitBeginAnew) {
  const auto stopping = early_stopping("train_loss", {.patience = 1});
  const auto saving = save_best(folder_ / "best", {.value = "train_loss"});
  const FitOptions fit{.epochs = 3, .batch = 8, .callbacks = {stopping, saving}};
  Trainer easy(small_mlp(), options());
  easy.fit(small_data(40).cached(), fit);
  const std::string best_before = content(folder_ / "best.safetensors");

  Trainer hard(small_mlp(), options(1e-4));
  const data::Dataset data = small_data(40, 9, 8).cached();
  Trainer alone(small_mlp(), options(1e-4));
  const History expected = alone.fit(
      data,
      {.epochs = 3, .batch = 8, .callbacks = {early_stopping("train_loss", {.patience = 1})}});
  EXPECT_EQ(without_times(hard.fit(data, fit)), without_times(expected));
  EXPECT_EQ(hard.weights_sha256(), alone.weights_sha256());
  EXPECT_NE(content(folder_ / "best.safetensors"), best_before);
}

TEST(Callbacks, StateThatIsNotTheirsIsLeftAlone) {
  for (const CallbackPtr& callback : {early_stopping("val_loss"), save_best("unused")}) {
    const std::string before = callback->save().text;
    for (const char* text : {"", " ", "x", "nonsense of another"}) {
      EXPECT_NO_THROW(callback->restore({.text = text, .values = {}})) << text;
      EXPECT_EQ(callback->save().text, before) << text;
    }
  }
}

// What a callback does to the weights counts from the next step on.
TEST(Callbacks, MayChangeTheWeights) {
  const data::Dataset data = small_data(48).cached();
  const auto halve = [](Trainer& trainer) {
    for (const std::string& name : trainer.parameter_names()) {
      for (float& weight : trainer.weights(name)) weight *= 0.5f;
    }
  };
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    TrainerOptions both = options();
    both.precision = precision;
    const Model model =
        Sequential({6, 6, 1}, {conv2d(16, 3, relu), conv2d(16, 3, relu), flatten(), dense(4)});
    Trainer inside(model, both), between(model, both);
    inside.fit(data, {.epochs = 2,
                      .batch = 8,
                      .callbacks = {on_epoch_end([&](Trainer& trainer, const EpochRecord& record) {
                        if (record.epoch == 1) halve(trainer);
                        return true;
                      })}});
    between.fit(data, {.epochs = 1, .batch = 8});
    halve(between);
    between.fit(data, {.epochs = 1, .batch = 8});
    EXPECT_EQ(inside.weights_sha256(), between.weights_sha256()) << precision_name(precision);
  }
}

}  // namespace
}  // namespace starling
