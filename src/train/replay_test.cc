// Replays of records that are written by hand; tests/workers_replay_test.cc has those of real runs.
#include "param/record_file.h"
#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::HasSubstr;

class ReplayTest : public FitTest {
 protected:
  static constexpr uint64_t kSamples = 48, kBatch = 16;
  static constexpr uint32_t kEpochs = 3;

  // `ahead` workers that take turns: each is lent its samples when so many others are computing.
  static RecordedStretch taking_turns(int ahead, uint32_t epoch, const Optimizer& optimizer) {
    constexpr uint64_t kUpdates = kSamples / kBatch;
    RecordedStretch stretch{.epoch = epoch,
                            .version = epoch * kUpdates,
                            .epochs = kEpochs,
                            .shards = 4,
                            .numbers = "by hand",
                            .optimizer = optimizer,
                            .usual = kBatch,
                            .workers = {},
                            .log = {},
                            .averaged = {}};
    for (int worker = 0; worker < ahead; ++worker) stretch.workers.push_back(worker);
    stretch.averaged = stretch.workers;
    std::vector<Push> lent;
    uint64_t version = stretch.version;
    const auto apply = [&] {
      stretch.log.push_back(
          {.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {lent.front()}});
      lent.erase(lent.begin());
      ++version;
    };
    for (uint64_t i = 0; i < kUpdates; ++i) {
      if (lent.size() == static_cast<size_t>(ahead)) apply();
      const int worker = static_cast<int>(i) % ahead;
      lent.push_back({.worker = worker,
                      .samples = {i * kBatch, (i + 1) * kBatch},
                      .version = version,
                      .finite = true,
                      .sums = {}});
      stretch.log.push_back({.kind = Order::Kind::kLend,
                             .worker = worker,
                             .samples = lent.back().samples,
                             .pushes = {}});
    }
    while (!lent.empty()) apply();
    return stretch;
  }

  std::filesystem::path write(const std::vector<RecordedStretch>& stretches) const {
    const std::filesystem::path path = folder_ / "record.txt";
    RecordFile file(path);
    file.go_on_after(0);
    for (const RecordedStretch& stretch : stretches) file.append(stretch);
    return path;
  }
  std::filesystem::path write_turns(int ahead, const Optimizer& optimizer) const {
    std::vector<RecordedStretch> stretches;
    for (uint32_t epoch = 0; epoch < kEpochs; ++epoch)
      stretches.push_back(taking_turns(ahead, epoch, optimizer));
    return write(stretches);
  }

  struct Trained {
    std::vector<float> state;
    History history;
    bool operator==(const Trained&) const = default;
  };
  Trained fit(const Model& model, const Optimizer& optimizer,
              const std::optional<ReplayOptions>& replay, int lanes = 2) const {
    Trainer trainer(model, {.optimizer = optimizer,
                            .loss = softmax_cross_entropy(),
                            .seed = 5,
                            .lanes = lanes,
                            .shards = 4});
    const History history = trainer.fit(
        data_, {.epochs = kEpochs, .batch = kBatch, .validation = data_, .replay = replay});
    return {trainer.snapshot(), without_times(history)};
  }

  const data::Dataset data_ = small_data(kSamples).cached();
};

TEST_F(ReplayTest, WorkersOneAfterAnotherDoWhatOneProcessDoes) {
  for (const Optimizer& optimizer :
       {momentum(0.02, {.schedule = cosine()}), adam(1e-2), adamw(1e-2)}) {
    for (const Model& model : {small_mlp(), small_cnn()}) {
      const Trained alone = fit(model, optimizer, std::nullopt);
      const Trained replayed =
          fit(model, optimizer, ReplayOptions{.record = write_turns(1, optimizer)});
      EXPECT_EQ(replayed.state, alone.state) << optimizer_name(optimizer.kind);
      EXPECT_EQ(replayed.history, alone.history) << optimizer_name(optimizer.kind);
    }
  }
}

TEST_F(ReplayTest, TheMomentOfComputingHasNoEffect) {
  const Optimizer optimizer = adam(1e-2);
  const std::filesystem::path record = write_turns(2, optimizer);
  const Trained first = fit(small_cnn(), optimizer, ReplayOptions{.record = record});
  for (uint64_t seed = 2; seed < 8; ++seed) {
    const Trained other =
        fit(small_cnn(), optimizer, ReplayOptions{.record = record, .timing_seed = seed}, 1);
    EXPECT_EQ(other.state, first.state) << seed;
    EXPECT_EQ(other.history, first.history) << seed;
  }
  EXPECT_NE(fit(small_cnn(), optimizer, ReplayOptions{.record = write_turns(1, optimizer)}).state,
            first.state)
      << "other weights were read";
}

TEST_F(ReplayTest, TheOptimizerIsThatOfTheRecord) {
  const Optimizer optimizer = momentum(0.02);
  const std::filesystem::path record = write_turns(1, optimizer);
  EXPECT_EQ(fit(small_mlp(), momentum(0.5), ReplayOptions{.record = record}).state,
            fit(small_mlp(), optimizer, std::nullopt).state);
}

TEST_F(ReplayTest, WhatIsNotOfTheJobIsRefused) {
  const Optimizer optimizer = momentum(0.02);
  const auto error = [&](const RecordedStretch& stretch) {
    const std::filesystem::path record = write({stretch});
    return refusal([&] { fit(small_mlp(), optimizer, ReplayOptions{.record = record}); });
  };
  RecordedStretch stretch = taking_turns(1, 0, optimizer);
  stretch.epoch = 1;
  EXPECT_THAT(error(stretch), HasSubstr("is not of this job"));
  EXPECT_THAT(error(taking_turns(1, 0, adam(0.1))), HasSubstr("is not of this job"));
  stretch = taking_turns(1, 0, optimizer);
  stretch.log[0].samples = stretch.log[1].pushes[0].samples = {kSamples, kSamples + 1};
  EXPECT_THAT(error(stretch), HasSubstr("is not of this job"));
  stretch = taking_turns(1, 0, optimizer);
  stretch.log[2].samples = stretch.log[3].pushes[0].samples = stretch.log[0].samples;
  EXPECT_THAT(error(stretch), HasSubstr("is not of this job")) << "samples of an earlier update";
}

TEST_F(ReplayTest, ARecordIsOfWorkersThatTrainApart) {
  Trainer trainer(small_mlp(), {.loss = softmax_cross_entropy()});
  EXPECT_THAT(refusal([&] { trainer.fit(data_, {.record = folder_ / "record.txt"}); }),
              HasSubstr("a record is of workers that train apart"));
  EXPECT_THAT(refusal([&] {
                trainer.fit(data_, {.replay = ReplayOptions{.record = folder_ / "absent.txt"}});
              }),
              HasSubstr("absent.txt"));
}

}  // namespace
}  // namespace starling
