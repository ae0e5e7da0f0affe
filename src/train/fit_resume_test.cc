// A run that was stopped and went on ends with the bits of one that never stopped.
#include <optional>
#include <random>

#include "seeds.h"
#include "train/checkpoint.h"
#include "train/fit_testing.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// 50 samples in batches of 8: 7 steps to an epoch, the last with 2 samples.
constexpr uint64_t kSamples = 50, kBatch = 8, kSteps = 7;

struct Job {
  Optimizer optimizer = adam(1e-2, {.weight_decay = 0.01, .schedule = cosine({.warmup_steps = 3})});
  Model model = small_cnn();
  uint32_t epochs = 3;
  uint64_t seed = 9;
  uint64_t batch = kBatch;
  uint64_t accumulate = 1;
  int shards = 4;
  bool cached = true;
  float noise = 1;
  std::optional<EarlyStoppingOptions> early_stopping = {};
  CheckpointPolicy checkpoints = {};
  std::vector<CallbackPtr> more_callbacks = {};  // before it
  std::vector<MetricPtr> metrics = {};
};

struct RunOutcome {
  std::vector<double> train_seconds;  // of epochs
  std::string weights;
  std::vector<float> predictions;
  History history;
  std::string ledger;
  FitSummary summary;
  std::vector<std::string> notes;
  std::optional<History> resumed_with;
};

class Resume : public FitTest {
 protected:
  // One process: trains until the step `stop_at` of this process, or to the end.
  RunOutcome run(const Job& job, const std::string& name, bool resume = false, int lanes = 2,
                 uint64_t stop_at = UINT64_MAX) {
    const data::Dataset data = small_data(kSamples, 1, job.noise),
                        validation =
                            small_data(kSamples + 30, 1, job.noise).skip(kSamples).cached();
    Trainer trainer(job.model, {.optimizer = job.optimizer,
                                .loss = softmax_cross_entropy(),
                                .metrics = job.metrics,
                                .seed = job.seed,
                                .lanes = lanes,
                                .shards = job.shards});
    RunOutcome outcome;
    FitOptions options{.epochs = job.epochs,
                       .batch = job.batch,
                       .accumulate = job.accumulate,
                       .validation = validation,
                       .checkpoints = job.checkpoints,
                       .ledger = folder_ / (name + ".jsonl")};
    options.checkpoints.folder = folder_ / name;
    options.checkpoints.every_seconds = 0;
    options.checkpoints.resume = resume;
    options.on_note = [&](const std::string& note) { outcome.notes.push_back(note); };
    options.on_resume = [&](const History& history) { outcome.resumed_with = history; };
    uint64_t steps = 0;
    options.should_stop = [&] { return ++steps >= stop_at; };
    options.callbacks = job.more_callbacks;
    if (job.early_stopping)
      options.callbacks.push_back(early_stopping("val_loss", *job.early_stopping));
    const History history = trainer.fit(job.cached ? data.cached() : data, options);
    for (const EpochRecord& record : history.epochs())
      outcome.train_seconds.push_back(record.train_seconds);
    outcome.history = without_times(history);
    outcome.weights = trainer.weights_sha256();
    outcome.predictions = trainer.predict(validation);
    outcome.ledger = content(options.ledger);
    outcome.summary = trainer.summary();
    return outcome;
  }

  // A run of several processes, each of which does that many steps, with other lanes each time.
  RunOutcome run_in_parts(const Job& job, const std::string& name,
                          const std::vector<uint64_t>& parts) {
    int lanes = 1;
    for (size_t i = 0; i < parts.size(); ++i, lanes = lanes % 3 + 1) {
      const RunOutcome part = run(job, name, i > 0, lanes, parts[i]);
      EXPECT_TRUE(part.summary.stopped);
      EXPECT_EQ(part.summary.trained_samples > 0, parts[i] > 0);
    }
    return run(job, name, true, lanes);
  }

  static void expect_same(const RunOutcome& actual, const RunOutcome& expected) {
    EXPECT_EQ(actual.weights, expected.weights);
    EXPECT_EQ(actual.predictions, expected.predictions)
        << "running statistics are part of a prediction";
    EXPECT_EQ(actual.history, expected.history);
    EXPECT_EQ(actual.ledger, expected.ledger);
    EXPECT_EQ(actual.summary.steps, expected.summary.steps);
    EXPECT_EQ(actual.summary.samples, expected.summary.samples);
    EXPECT_EQ(actual.summary.samples_unique, expected.summary.samples_unique);
    EXPECT_EQ(actual.summary.samples_missing, 0u);
    EXPECT_EQ(actual.summary.samples_duplicated, 0u);
    EXPECT_FALSE(actual.summary.stopped);
  }
};

TEST_F(Resume, AtChosenStepsGivesTheSameBits) {
  const Job job;
  const RunOutcome expected = run(job, "whole");
  int index = 0;
  for (const std::vector<uint64_t>& parts : {std::vector<uint64_t>{1},
                                             {kSteps - 1},
                                             {kSteps},
                                             {kSteps + 1},
                                             {2 * kSteps},
                                             {3 * kSteps},
                                             {3, 3, 3},
                                             {kSteps, kSteps}}) {
    SCOPED_TRACE(testing::PrintToString(parts));
    const RunOutcome actual = run_in_parts(job, "parts" + std::to_string(index++), parts);
    expect_same(actual, expected);
    EXPECT_THAT(actual.summary.resumed_from, HasSubstr("step-"));
    ASSERT_TRUE(actual.resumed_with);
  }
}

// 7 batches: steps of 2, 2, 2 and 1.
TEST_F(Resume, BetweenStepsOfSeveralBatchesGivesTheSameBits) {
  for (const bool cached : {true, false}) {
    const Job job{.accumulate = 2, .cached = cached};
    const std::string name = cached ? "cached" : "read";
    const RunOutcome expected = run(job, "whole" + name);
    EXPECT_EQ(expected.summary.steps, 12u);
    for (const std::vector<uint64_t>& parts :
         {std::vector<uint64_t>{1}, {3}, {4}, {5}, {2, 3, 2}, {12}}) {
      SCOPED_TRACE(testing::PrintToString(parts));
      expect_same(run_in_parts(job, name + testing::PrintToString(parts), parts), expected);
    }
  }
}

class ResumeWith : public Resume, public testing::WithParamInterface<Optimizer> {};

TEST_P(ResumeWith, AtRandomStepsGivesTheSameBits) {
  for (const Model& model : {small_mlp(), small_cnn()}) {
    for (uint32_t seed = 1; seed <= seed_count(3); ++seed) {
      SCOPED_TRACE(seed);
      Job job{.optimizer = GetParam(), .model = model, .seed = seed, .cached = seed % 2 == 0};
      job.checkpoints.every_steps = seed == 1 ? 0 : 5;
      const std::string name = std::to_string(seed) + "_" + std::to_string(model.parameter_count());
      const RunOutcome expected = run(job, "whole" + name);
      std::mt19937 random(seed);
      std::vector<uint64_t> parts;
      for (uint64_t left = 3 * kSteps; left > 1 && parts.size() < 3; left -= parts.back())
        parts.push_back(1 + random() % (left - 1));
      SCOPED_TRACE(testing::PrintToString(parts));
      expect_same(run_in_parts(job, "parts" + name, parts), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeWith,
                         testing::Values(sgd(0.1, {.weight_decay = 0.01}),
                                         momentum(0.05, {.schedule = step_decay({.every = 8})}),
                                         nesterov(0.05, {.clip_norm = 1.0}),
                                         adam(1e-2, {.schedule = cosine()}), adamw(1e-2)),
                         [](const auto& test) {
                           return std::string(optimizer_name(test.param.kind));
                         });

TEST_F(Resume, OfAFinishedRunChangesNothing) {
  const Job job;
  const RunOutcome expected = run(job, "run"), again = run(job, "run", true);
  expect_same(again, expected);
  EXPECT_EQ(again.summary.trained_samples, 0u);
}

// The checkpoint at the end of a run lies before step 0 of the next epoch.
TEST_F(Resume, LengthensARun) {
  Job job{.optimizer = adam(1e-2)};
  const RunOutcome expected = run(job, "whole");
  job.epochs = 1;
  run(job, "longer");
  job.epochs = 3;
  const RunOutcome actual = run(job, "longer", true);
  expect_same(actual, expected);
  EXPECT_EQ(actual.resumed_with->size(), 1u);
}

// Noise makes the validation loss rise, so the run ends early, and its best weights come from a
// process that is gone.
TEST_F(Resume, KeepsTheBestWeightsOfEarlyStopping) {
  Job job{.optimizer = adam(3e-2),
          .model = small_cnn(),
          .epochs = 30,
          .noise = 4,
          .early_stopping = EarlyStoppingOptions{.patience = 3}};
  const RunOutcome expected = run(job, "whole");
  const size_t epochs = expected.history.size();
  ASSERT_LT(epochs, 30u);
  ASSERT_GT(epochs, 3u);
  for (const uint64_t left : {1ul, 5ul, kSteps, kSteps + 3, 2 * kSteps}) {
    SCOPED_TRACE(left);
    expect_same(run_in_parts(job, "parts" + std::to_string(left), {epochs * kSteps - left}),
                expected);
  }
  expect_same(run(job, "whole", true), expected);  // it had ended: nothing is trained again
}

TEST_F(Resume, NotesWhenThereIsNothing) {
  const RunOutcome fresh = run({}, "fresh"), resumed = run({}, "nothing", true);
  EXPECT_THAT(resumed.notes, ElementsAre(HasSubstr("nothing to resume")));
  expect_same(resumed, fresh);
  EXPECT_EQ(resumed.summary.resumed_from, "");
  EXPECT_FALSE(resumed.resumed_with);
}

TEST_F(Resume, WithoutAFolderIsRefused) {
  Trainer trainer(small_mlp(), {.loss = softmax_cross_entropy()});
  EXPECT_THROW(trainer.fit(small_data(10), {.checkpoints = {.resume = true}}), Error);
}

TEST_F(Resume, RefusesAnotherJob) {
  run({}, "run", false, 2, 3);
  const auto refused = [&](const Job& job) {
    return std::string(error_of([&] { run(job, "run", true); }).what());
  };
  EXPECT_THAT(refused({.seed = 10}), testing::AllOf(HasSubstr("seed = 9"), HasSubstr("10")));
  EXPECT_THAT(refused({.batch = 16}), testing::AllOf(HasSubstr("batch = 8"), HasSubstr("16")));
  EXPECT_THAT(refused({.accumulate = 2}), HasSubstr("accumulate = 1"));
  EXPECT_THAT(refused({.shards = 2}), testing::AllOf(HasSubstr("shards = 4"), HasSubstr("2")));
  EXPECT_THAT(refused({.optimizer = sgd(0.1)}),
              testing::AllOf(HasSubstr("optimizer"), HasSubstr("adam"), HasSubstr("sgd")));
  EXPECT_NO_THROW(run({}, "run", true, 1));
}

TEST_F(Resume, RefusesAnotherModel) {
  run({}, "run", false, 2, 3);
  Job other;
  other.model = Sequential({6, 6, 1}, {conv2d(8, 3, linear, {.bias = false}), batch_norm(), relu,
                                       max_pool2d(2), flatten(), dense(12), dense(5)});
  // Its micro-batch may differ too, and then that is named.
  EXPECT_EQ(error_of([&] { run(other, "run", true); }).exit_code(), 2);
}

TEST_F(Resume, InTheMiddleOfAnEpochHasItsMetrics) {
  const Job one{.metrics = {accuracy()}}, two{.metrics = {accuracy(), top_k(2)}};
  for (const auto& [before, after] : {std::pair{one, two}, {two, one}}) {
    const std::string name = fmt::format("{}", before.metrics.size());
    run(before, name, false, 2, 3);
    EXPECT_THAT(std::string(error_of([&, &job = after] { run(job, name, true); }).what()),
                HasSubstr("other metrics"));
    // Between two epochs they may change.
    Job first = before;
    first.epochs = 1;
    run(first, name + " done");
    const RunOutcome whole = run(after, name + " done", true);
    EXPECT_EQ(whole.history.epochs().size(), 3u);
    EXPECT_EQ(whole.history.epochs().back().values.size(),
              run(after, name + " alone").history.epochs().back().values.size());
  }
}

TEST_F(Resume, RefusesSamplesThatThereAreNone) {
  run({}, "run", false, 2, 3);
  for (const Json& free : {Json{{5, 3}}, Json{{5, 5}}, Json{{0, uint64_t{1} << 40}},
                           Json{{0, 10}, {5, 50}}, Json{{20, 30}, {0, 10}}}) {
    CheckpointStore store(folder_ / "run");
    Snapshot snapshot = store.load_latest()->snapshot;
    snapshot.manifest["free"] = free;
    store.save(snapshot);
    store.wait();
    EXPECT_THAT(std::string(error_of([&] { run({}, "run", true); }).what()),
                HasSubstr("speaks of samples"));
  }
}

// The run goes on from the checkpoint before the damaged one, through an epoch that the ledger has
// told of already.
TEST_F(Resume, PassesOverADamagedCheckpoint) {
  Job job;
  const RunOutcome expected = run(job, "whole");
  job.checkpoints.every_steps = 6;
  for (const std::string file : {"weights.safetensors", "manifest.json"}) {
    SCOPED_TRACE(file);
    const std::string name = "damaged_" + file.substr(0, 4);
    run(job, name, false, 2, 15);
    const fs::path newest = folder_ / name / "step-00000015" / file;
    ASSERT_TRUE(fs::exists(newest));
    std::string bytes = content(newest);
    bytes[bytes.size() / 2] ^= 1;
    std::ofstream(newest, std::ios::binary) << bytes;
    const RunOutcome actual = run(job, name, true);
    EXPECT_THAT(actual.notes,
                Contains(testing::AllOf(HasSubstr("damaged"), HasSubstr("step-00000015"))));
    EXPECT_THAT(actual.summary.resumed_from, HasSubstr("step-00000012"));
    expect_same(actual, expected);
  }
}

TEST_F(Resume, RefusesWhenAllCheckpointsAreDamaged) {
  run({}, "run", false, 2, 3);
  for (const auto& entry : fs::directory_iterator(folder_ / "run"))
    fs::resize_file(entry.path() / "manifest.json", 10);
  EXPECT_THAT(error_of([&] { run({}, "run", true); }).what(), HasSubstr("damaged"));
}

TEST_F(Resume, KeepsAsManyCheckpointsAsAsked) {
  Job job;
  job.checkpoints.every_steps = 2;
  job.checkpoints.keep = 2;
  run(job, "run");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "run"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000020", "step-00000021"));
}

// Callbacks may be others than those of the run before: they start afresh.
TEST_F(Resume, WithOtherCallbacksGoesOn) {
  run({}, "run", false, 2, 10);
  Job job;
  job.early_stopping = EarlyStoppingOptions{.patience = 100, .restore_best = false};
  EXPECT_EQ(run(job, "run", true).weights, run({}, "whole").weights);
}

// So a limit of time counts all of it.
TEST_F(Resume, AnEpochThatWasInterruptedTookAllItsTime) {
  const double before = run({}, "run", false, 2, kSteps - 1).summary.training_seconds;
  const RunOutcome resumed = run({}, "run", true);
  EXPECT_GT(before, 0);
  EXPECT_GT(resumed.train_seconds.at(0), before);
  EXPECT_LT(resumed.train_seconds.at(1), resumed.summary.training_seconds);
}

// What one has learnt is nothing to another, wherever they stand.
TEST_F(Resume, CallbacksRememberWhatIsTheirOwn) {
  Job job;
  job.early_stopping = EarlyStoppingOptions{.patience = 2};
  run(job, "run", false, 2, 2 * kSteps + 1);
  const RunOutcome expected = run(job, "whole");
  const auto best = save_best(folder_ / "best", {.value = "val_loss"});
  job.more_callbacks = {best};
  const RunOutcome actual = run(job, "run", true);
  EXPECT_EQ(actual.weights, expected.weights);
  EXPECT_EQ(actual.history, expected.history);
  EXPECT_TRUE(fs::exists(folder_ / "best.safetensors"));
}

// On another CPU, or with another version, weights go on to other bits: that is said, and is no
// error. Old checkpoints do not tell what they were computed with.
TEST_F(Resume, SaysWhenBitsCanNotBeTheSame) {
  const RunOutcome expected = run({}, "whole");
  run({}, "run", false, 2, 3);
  const auto resumed_with = [&](const std::function<void(Json&)>& change) {
    CheckpointStore store(folder_ / "run");
    Snapshot snapshot = store.load_latest()->snapshot;
    change(snapshot.manifest);
    store.save(snapshot);
    store.wait();
    EXPECT_EQ(store.failure(), std::nullopt);
    const RunOutcome actual = run({}, "run", true, 2, 1);
    EXPECT_THAT(actual.summary.resumed_from, HasSubstr("step-"));
    std::vector<std::string> said;
    for (const std::string& note : actual.notes) {
      if (note.starts_with("the weights go on")) said.push_back(note);
    }
    return said;
  };
  EXPECT_THAT(resumed_with([](Json&) {}), testing::IsEmpty());
  EXPECT_THAT(resumed_with([](Json& manifest) { manifest.erase("numbers"); }), testing::IsEmpty());
  EXPECT_THAT(resumed_with([](Json& manifest) { manifest.at("numbers").erase("bf16"); }),
              testing::IsEmpty());
  EXPECT_THAT(resumed_with([](Json& manifest) {
                manifest.at("numbers").at("version") = "0.0.1";
                manifest.at("numbers").at("onednn") = "1.2.3 avx";
              }),
              ElementsAre(testing::AllOf(
                  HasSubstr("the weights go on, but not with the same bits: version was 0.0.1 and "
                            "is "),
                  HasSubstr(", onednn was 1.2.3 avx and is "))));
  expect_same(run({}, "run", true), expected);
}

TEST_F(Resume, WhereNothingCanBeWrittenTrainsOnAndSaysSo) {
  const RunOutcome expected = run({}, "whole");
  std::ofstream(folder_ / "blocked") << "a file where the folder should be";
  Job job;
  job.checkpoints.every_steps = 5;
  const RunOutcome actual = run(job, "blocked");
  EXPECT_EQ(actual.weights, expected.weights);
  EXPECT_THAT(actual.notes, Contains(HasSubstr("not saved")));
}

}  // namespace
}  // namespace starling
