#include "train/local_work.h"

#include <gmock/gmock.h>

#include <cmath>

#include "error_of.h"
#include "train/fit_testing.h"
#include "train/trainer_impl.h"

namespace starling {
namespace {

constexpr uint64_t kRows = 12;
constexpr double kRate = 0.125;

// A worker at its desk, alone.
class LocalWork : public testing::Test {
 protected:
  LocalWork()
      : data_(small_data(kRows)),
        reader_(reader_of(data_)),
        model_(small_cnn()),
        optimizer_(momentum(kRate)),
        state_(model_.graph(), optimizer_, 4),
        executor_(model_.graph(), softmax_cross_entropy(), {}, state_.space, state_.moments,
                  state_.weights.data(), {.shards = 1, .seed = 8}),
        gradient_(state_.space.total_floats()) {
    for (uint64_t i = 0; i < kRows; ++i) samples_.push_back(i);
    executor_.move_to(state_.weights.data(), gradient_.data());
  }

  // Steps of 4 samples.
  std::unique_ptr<LocalSteps> steps(bool resets = false, NonFinite policy = NonFinite::kStop) {
    return std::make_unique<LocalSteps>(
        executor_, state_, optimizer_, policy,
        LocalSteps::Options{.batch = 8, .parts = 2, .total_steps = 100, .resets = resets});
  }
  LeaseWork::Work work() {
    return {.samples = samples_,
            .epoch = 1,
            .trained = 16,
            .seat = {state_.weights.span(), gradient_.span()}};
  }
  std::vector<float> weights() const { return {state_.weights.begin(), state_.weights.end()}; }
  std::vector<float> velocity() {
    const float* const values = state_.optimizer.at(0, 0);
    return {values, values + state_.space.total_floats()};
  }
  void set_weights(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), state_.weights.begin());
  }

  const data::Dataset data_;
  const RowReader reader_;
  const Model model_;
  const Optimizer optimizer_;
  TrainState state_;
  Executor executor_;
  Buffer<float> gradient_;
  std::vector<uint64_t> samples_;
};

TEST_F(LocalWork, HandsInHowFarItHasCome) {
  const std::vector<float> before = weights();
  LocalChange change(steps(), before.size());
  const LeaseWork::Result result = change.run(work(), reader_);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.sums->samples, static_cast<int64_t>(kRows));
  SampleHash lent;
  lent.add(samples_);
  EXPECT_EQ(result.computed, lent) << "in all of its steps";
  ASSERT_EQ(result.change.data(), gradient_.data());
  const std::vector<float> after = weights();
  EXPECT_NE(before, after);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(result.change[i], before[i] - after[i]) << i;

  // All agree on a point half of the way to there.
  std::vector<float> agreed(before.size());
  double apart = 0, length = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    agreed[i] = 0.5f * (before[i] + after[i]);
    apart += std::pow(double{after[i]} - double{agreed[i]}, 2);
    length += std::pow(double{agreed[i]}, 2);
  }
  change.agreed(agreed);
  change.agreed(before);  // told once
  EXPECT_EQ(change.disagreement().count, 1u);
  EXPECT_NEAR(change.disagreement().sum, std::sqrt(apart / length), 1e-9);
}

TEST_F(LocalWork, IsStepsOfTheOptimizerOneAfterAnother) {
  const std::vector<float> before = weights();
  LocalSteps together = LocalSteps(executor_, state_, optimizer_, NonFinite::kStop,
                                   {.batch = 8, .parts = 2, .total_steps = 100});
  together.run(work(), reader_);
  const std::vector<float> after = weights(), moved = velocity();
  together.take_back();
  EXPECT_EQ(velocity(), std::vector<float>(before.size(), 0.0f));
  set_weights(before);
  LeaseStep gradient(executor_, state_, optimizer_, NonFinite::kStop);
  std::vector<float> now = before, speed(before.size(), 0.0f);
  for (size_t first = 0; first < kRows; first += 4) {
    const auto begin = samples_.begin() + static_cast<std::ptrdiff_t>(first);
    const LeaseWork::Result result =
        gradient.run({.samples = {begin, begin + 4}, .epoch = 1}, reader_);
    for (size_t i = 0; i < now.size(); ++i) {
      speed[i] = 0.9f * speed[i] + result.change[i];
      now[i] -= static_cast<float>(kRate) * speed[i];
    }
    set_weights(now);
  }
  for (size_t i = 0; i < now.size(); ++i) {
    ASSERT_NEAR(now[i], after[i], 1e-5) << i;
    ASSERT_NEAR(speed[i], moved[i], 1e-5) << i;
  }
}

TEST_F(LocalWork, AnOptimizerMayBeginAnewWithEachLease) {
  const std::vector<float> before = weights();
  LocalChange change(steps(true), before.size());
  static_cast<void>(change.run(work(), reader_));
  const std::vector<float> first = weights(), velocity_then = velocity();
  set_weights(before);
  static_cast<void>(change.run(work(), reader_));
  EXPECT_EQ(weights(), first);
  EXPECT_EQ(velocity(), velocity_then);
}

TEST_F(LocalWork, CentreAndWorkerPullEachOther) {
  const std::vector<float> start = weights();
  OwnWeights own;
  ElasticSteps elastic(steps(), own, 0.25);
  const LeaseWork::Result first = elastic.run(work(), reader_);
  for (const float pull : first.change) ASSERT_EQ(pull, 0) << "it has begun at the centre";
  EXPECT_EQ(own.now, weights());

  // The others have pulled the centre elsewhere.
  const std::vector<float> worker = own.now;
  std::vector<float> centre = start;
  for (float& value : centre) value += 0.01f;
  set_weights(centre);
  const LeaseWork::Result second = elastic.run(work(), reader_);
  for (size_t i = 0; i < centre.size(); ++i)
    ASSERT_EQ(second.change[i], -0.25f * (worker[i] - centre[i])) << i;
  EXPECT_EQ(own.now, weights());
  EXPECT_EQ(own.before, worker);
  EXPECT_EQ(elastic.disagreement().count, 1u);
  // It was not applied.
  elastic.take_back(1);
  EXPECT_EQ(own.now, worker);
}

TEST_F(LocalWork, AStepThatIsNotFiniteIsLeftOut) {
  const RowReader bad = [&](std::span<const uint64_t> ids, float* features, float* labels) {
    reader_(ids, features, labels);
    if (ids[0] == 4) features[0] = NAN;  // of the second step
  };
  LocalChange change(steps(false, NonFinite::kSkip), gradient_.size());
  const LeaseWork::Result result = change.run(work(), bad);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.skipped, 1u);
  EXPECT_EQ(result.sums->samples, 8);
  EXPECT_EQ(result.computed.samples, static_cast<int64_t>(kRows)) << "it was computed all the same";
  const std::vector<double> told = result.told_sums();
  EXPECT_EQ(told[told.size() - 2], 8);
  EXPECT_EQ(told.back(), 1);
}

TEST_F(LocalWork, WeightsThatAreNotFiniteEndItOrAreForgotten) {
  const Optimizer fast = momentum(4);
  const auto one_step = [&](NonFinite policy) {
    return std::make_unique<LocalSteps>(
        executor_, state_, fast, policy,
        LocalSteps::Options{.batch = 8, .parts = 2, .total_steps = 100});
  };
  const std::vector<float> before = weights(), speed(before.size(), 1e38f);
  const auto begin = [&] {
    set_weights(before);
    std::copy(speed.begin(), speed.end(), state_.optimizer.at(0, 0));
  };
  samples_.resize(4);
  begin();
  LocalChange stops(one_step(NonFinite::kStop), before.size());
  EXPECT_THAT(std::string(error_of([&] { static_cast<void>(stops.run(work(), reader_)); }).what()),
              testing::HasSubstr("a weight is not finite"));

  begin();
  OwnWeights own;
  ElasticSteps skips(one_step(NonFinite::kSkip), own, 0.25);
  EXPECT_FALSE(skips.run(work(), reader_).finite);
  EXPECT_TRUE(own.now.empty()) << "it begins at the centre again";
  EXPECT_EQ(velocity(), speed) << "as it was before";
}

TEST_F(LocalWork, EveryStepIsOneThatGetsOn) {
  int steps_made = 0;
  LocalSteps some(executor_, state_, optimizer_, NonFinite::kStop,
                  {.batch = 8, .parts = 2, .total_steps = 100, .goes_on = [&] {
                     ++steps_made;
                     return true;
                   }});
  static_cast<void>(some.run(work(), reader_));
  EXPECT_EQ(steps_made, 3);
}

}  // namespace
}  // namespace starling
