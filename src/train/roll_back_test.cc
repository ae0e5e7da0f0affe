// Numbers that are not finite, and a run that goes back to its last checkpoint for them.
#include "train/fit_testing.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

// Twelve samples with two features, two in a step: the steps of `bad` (from 0) have a label whose
// loss is beyond f32.
data::Dataset steps_with(const std::vector<size_t>& bad, const std::vector<size_t>& left_out = {}) {
  std::vector<float> features, labels;
  for (size_t step = 0; step < 6; ++step) {
    if (std::count(left_out.begin(), left_out.end(), step) > 0) continue;
    const bool is_bad = std::count(bad.begin(), bad.end(), step) > 0;
    for (const float x : {0.25f, 1.0f}) {
      const float at = static_cast<float>(step + 1) * x;
      features.insert(features.end(), {at, 1 - at * at});
      labels.push_back(is_bad ? 1e30f : at);
    }
  }
  return data::in_memory(features, {2}, labels);
}

class RollBack : public FitTest {
 protected:
  static Trainer trainer(NonFinite policy, const Cluster& cluster = {},
                         const std::string& strategy = "") {
    TrainerOptions options{.optimizer = adam(1e-2),
                           .loss = mean_squared_error(),
                           .seed = 3,
                           .lanes = 1,
                           .shards = 2,
                           .non_finite = policy,
                           .cluster = cluster};
    if (!strategy.empty()) options.strategy.name = strategy;
    return Trainer(Sequential({2}, {batch_norm(), dense(3, tanh), dense(1)}), options);
  }

  // With a checkpoint every so many steps.
  struct More {
    uint32_t epochs = 1;
    std::string folder = "checkpoints";
  };
  FitOptions every(uint64_t steps, const More& more) {
    return {
        .epochs = more.epochs,
        .batch = 2,
        .shuffle = false,
        .checkpoints = {.folder = folder_ / more.folder, .every_seconds = 0, .every_steps = steps},
        .on_note = [this](const std::string& note) { notes_.push_back(note); }};
  }

  // Of one that never sees these steps: weights and running statistics.
  static std::vector<float> without(const std::vector<size_t>& steps) {
    Trainer other = trainer(NonFinite::kStop);
    other.fit(steps_with({}, steps), {.batch = 2, .shuffle = false});
    return other.snapshot();
  }

  std::vector<std::string> notes_;
};

TEST_F(RollBack, LeavesOutTheStepsSinceTheCheckpoint) {
  Trainer rolling = trainer(NonFinite::kRollBack);
  const History history = rolling.fit(steps_with({3}), every(2, {}));
  EXPECT_EQ(rolling.snapshot(), without({2, 3}));
  EXPECT_EQ(rolling.summary().skipped_steps, 2u);
  EXPECT_EQ(rolling.summary().roll_backs, 1u);
  EXPECT_EQ(rolling.summary().samples_unique, 12u) << "all were computed, each once";
  EXPECT_EQ(rolling.summary().samples_duplicated, 0u);
  EXPECT_THAT(history.column("step"), testing::ElementsAre(6)) << "steps left out are steps";
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("epoch 1 step 4"), HasSubstr("rolled back"),
                                     HasSubstr("the weights of step 2"))));
}

TEST_F(RollBack, GoesToTheStartWhenThereIsNoOtherCheckpoint) {
  Trainer rolling = trainer(NonFinite::kRollBack);
  rolling.fit(steps_with({1, 3}), every(0, {}));
  EXPECT_EQ(rolling.snapshot(), without({0, 1, 2, 3}));
  EXPECT_EQ(rolling.summary().skipped_steps, 4u) << "a step that was left out twice counts once";
  EXPECT_EQ(rolling.summary().roll_backs, 2u);
}

TEST_F(RollBack, NeverGoesToWhatAnotherRunHasLeft) {
  trainer(NonFinite::kStop).fit(steps_with({}), every(1, {}));
  Trainer rolling = trainer(NonFinite::kRollBack);
  rolling.fit(steps_with({1}), every(0, {}));
  EXPECT_EQ(rolling.snapshot(), without({0, 1}));
}

TEST_F(RollBack, EndsTheRunWhenThereAreTooManyInAnEpoch) {
  const data::Dataset all_bad =
      data::in_memory(std::vector<float>(40, 1), {2}, std::vector<float>(20, 1e30f));
  FitOptions options = every(0, {});
  options.batch = 1;
  Trainer rolling = trainer(NonFinite::kRollBack);
  const Error error = error_of([&] { rolling.fit(all_bad, options); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("epoch 1 step 11"), HasSubstr("10 roll backs")));
  EXPECT_THAT(error.hint(), HasSubstr("learning rate"));
  // They are counted by epoch.
  Trainer again = trainer(NonFinite::kRollBack);
  again.fit(steps_with({1, 3, 5}), every(0, {.epochs = 4}));
  EXPECT_EQ(again.summary().roll_backs, 12u);
}

TEST_F(RollBack, NeedsCheckpoints) {
  Trainer rolling = trainer(NonFinite::kRollBack);
  const Error error = error_of([&] { rolling.fit(steps_with({}), {.batch = 2}); });
  EXPECT_THAT(error.what(), HasSubstr("without checkpoints"));
  EXPECT_EQ(error.exit_code(), 2);
}

// Stopped right after it went back, it has saved what it went back to.
TEST_F(RollBack, ResumesToTheSameBits) {
  Trainer whole = trainer(NonFinite::kRollBack);
  whole.fit(steps_with({1, 3}), every(0, {.epochs = 2}));
  for (const int stop_after : {2, 4}) {
    SCOPED_TRACE(stop_after);
    FitOptions options = every(0, {.epochs = 2, .folder = std::to_string(stop_after)});
    int steps = 0;
    options.should_stop = [&] { return ++steps >= stop_after; };
    trainer(NonFinite::kRollBack).fit(steps_with({1, 3}), options);
    options.should_stop = nullptr;
    options.checkpoints.resume = true;
    Trainer resumed = trainer(NonFinite::kRollBack);
    resumed.fit(steps_with({1, 3}), options);
    EXPECT_EQ(resumed.snapshot(), whole.snapshot());
    EXPECT_EQ(resumed.summary().roll_backs, whole.summary().roll_backs);
    EXPECT_EQ(resumed.summary().skipped_steps, whole.summary().skipped_steps);
    EXPECT_EQ(resumed.summary().samples_unique, 24u);
  }
}

TEST_F(RollBack, WorkersGoBackTogether) {
  Trainer alone = trainer(NonFinite::kRollBack);
  alone.fit(steps_with({1, 4}), every(3, {.epochs = 2}));
  for (const char* strategy : {"all_reduce", "sharded"}) {
    SCOPED_TRACE(strategy);
    FitOptions options = every(3, {.epochs = 2, .folder = strategy});
    options.on_note = nullptr;  // by all at once
    for (const std::string& error : run_workers(2, [&](const std::shared_ptr<World>& world) {
           Trainer one = trainer(NonFinite::kRollBack, Cluster(world), strategy);
           one.fit(steps_with({1, 4}), options);
           EXPECT_EQ(one.snapshot(), alone.snapshot());
           EXPECT_EQ(one.summary().roll_backs, 4u);
           EXPECT_EQ(one.summary().skipped_steps, alone.summary().skipped_steps);
         })) {
      EXPECT_EQ(error, "");
    }
  }
}

}  // namespace
}  // namespace starling
