// Workers as threads of one process, over tcp: for what needs a worker to misbehave.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "data/digest.h"
#include "starling/starling.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

class Meddler : public Callback {
 public:
  bool epoch_end(Trainer& trainer, const EpochRecord&) override {
    trainer.weights("dense_1.weight")[3] += 1;
    return true;
  }
};

std::vector<std::string> train_with_meddler(int workers, uint64_t check_every, int meddling_rank,
                                            std::vector<std::string>& hashes) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  hashes.resize(static_cast<size_t>(workers));
  return run_workers(workers, [&](const std::shared_ptr<World>& world) {
    const Cluster cluster(world);
    Trainer trainer(Sequential({6}, {dense(8, relu), dense(3)}),
                    {.loss = softmax_cross_entropy(),
                     .lanes = 1,
                     .shards = 4,
                     .cluster = cluster,
                     .strategy = {.check_every = check_every}});
    FitOptions options{.epochs = 2, .batch = 16, .validation = data};
    if (cluster.rank() == meddling_rank) options.callbacks = {std::make_shared<Meddler>()};
    trainer.fit(data, options);
    hashes[static_cast<size_t>(cluster.rank())] = trainer.weights_sha256();
  });
}

TEST(CheckEvery, SaysNothingWhenAllAreAlike) {
  std::vector<std::string> hashes;
  for (const std::string& error : train_with_meddler(3, 1, -1, hashes)) EXPECT_EQ(error, "");
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

// An epoch has 3 steps, and the weights are changed after the first epoch.
TEST(CheckEvery, NamesStepAndWorkerOnAllWorkers) {
  for (const auto& [every, step] : {std::pair<uint64_t, int>{1, 4}, {5, 5}}) {
    std::vector<std::string> hashes;
    for (const std::string& error : train_with_meddler(3, every, 2, hashes)) {
      EXPECT_EQ(error, "after step " + std::to_string(step) +
                           " the weights of worker 2 are not those of the chief; they were "
                           "compared every " +
                           std::to_string(every) + " steps");
    }
  }
}

// One job, but not one beginning: over tcp each has weights of its own.
TEST(Workers, WithOtherWeightsAreRefusedBeforeTheFirstStep) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  for (const int odd : {-1, 0, 2}) {
    SCOPED_TRACE(odd);
    std::vector<uint64_t> steps(3);
    const auto errors = run_workers(3, [&](const std::shared_ptr<World>& world) {
      const Cluster cluster(world);
      Trainer trainer(
          Sequential({6}, {dense(8, relu), dense(3)}),
          {.loss = softmax_cross_entropy(), .lanes = 1, .shards = 4, .cluster = cluster});
      if (cluster.rank() == odd) trainer.weights("dense_1.weight")[3] += 1;
      FitOptions options{.epochs = 1, .batch = 16};
      options.should_stop = [&] { return ++steps[static_cast<size_t>(cluster.rank())] > 100; };
      trainer.fit(data, options);
    });
    for (size_t rank = 0; rank < errors.size(); ++rank) {
      if (odd < 0) {
        EXPECT_EQ(errors[rank], "");
        EXPECT_GT(steps[rank], 0u);
      } else {
        EXPECT_THAT(errors[rank],
                    testing::ContainsRegex("have not the same state: \"weights [0-9a-f]+\" against "
                                           "\"weights [0-9a-f]+\""));
        EXPECT_EQ(steps[rank], 0u);
      }
    }
  }
}

// As many samples, and they look alike.
TEST(Workers, WithOtherDataAreRefusedBeforeTheFirstStep) {
  const auto data_of = [](uint64_t seed) {
    return data::synthetic({.samples = 40, .features = {6}, .classes = 3, .seed = seed}).cached();
  };
  for (const bool validation : {false, true}) {
    const auto errors = run_workers(3, [&](const std::shared_ptr<World>& world) {
      const Cluster cluster(world);
      Trainer trainer(
          Sequential({6}, {dense(8, relu), dense(3)}),
          {.loss = softmax_cross_entropy(), .lanes = 1, .shards = 4, .cluster = cluster});
      const data::Dataset own = data_of(cluster.rank() == 2 ? 7 : 1);
      FitOptions options{.epochs = 1, .batch = 16};
      if (validation) options.validation = own;
      trainer.fit(validation ? data_of(1) : own, options);
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, testing::HasSubstr(fmt::format("workers 0 and 2 have not the same job: "
                                                        "\"{} data 40 of ",
                                                        validation ? "validation" : "training")));
    }
  }
}

// Batches of 16, 16 and 9 samples in 4 shards.
TEST(Workers, ReadOnlyWhatTheyCompute) {
  std::vector<std::atomic<int>> reads(41);
  const data::Dataset data =
      data::synthetic({.samples = 41, .features = {6}, .classes = 3})
          .cached()
          .map([&](const data::Sample& sample) { ++reads[static_cast<size_t>(sample.id)]; });
  const auto hash_of = [&](const Cluster& cluster) {
    Trainer trainer(Sequential({6}, {dense(8, relu), dense(3)}),
                    {.loss = softmax_cross_entropy(), .lanes = 1, .shards = 4, .cluster = cluster});
    trainer.fit(data, {.epochs = 2, .batch = 16});
    EXPECT_EQ(trainer.summary().samples_unique, 82u);
    return trainer.weights_sha256();
  };
  const std::string alone = hash_of(Cluster());
  for (std::atomic<int>& count : reads) EXPECT_EQ(count.exchange(0), 2);
  data::digest(data);  // by which workers compare their data: each of them reads that, too
  std::vector<int> compared;
  for (std::atomic<int>& count : reads) compared.push_back(count.exchange(0));
  for (const std::string& error : run_workers(3, [&](const std::shared_ptr<World>& world) {
         EXPECT_EQ(hash_of(Cluster(world)), alone);
       })) {
    EXPECT_EQ(error, "");
  }
  for (size_t i = 0; i < reads.size(); ++i)
    EXPECT_EQ(reads[i], 2 + 3 * compared[i]) << "once an epoch, by one of them";
}

// Changes its own options when all have compared theirs: it takes samples in another order.
class Disorder : public Callback {
 public:
  explicit Disorder(FitOptions& options) : options_(options) {}
  void train_begin(Trainer&) override { options_.shuffle = false; }
  bool epoch_end(Trainer&, const EpochRecord&) override { return true; }

 private:
  FitOptions& options_;
};

// Nobody else knows in which order worker 1 takes them.
TEST(Workers, ThatTrainApartAreFoundOutWhenTheyComputeOtherSamples) {
  const data::Dataset data =
      data::synthetic({.samples = 40, .features = {6}, .classes = 3}).cached();
  const auto errors_of = [&](const StrategyOptions& strategy, bool honest) {
    // Who is first to find out stays until the other has all that it needs to.
    std::array<std::shared_ptr<World>, 2> stay;
    return run_coordinated(2, [&](const std::shared_ptr<World>& world) {
      const Cluster cluster(world);
      stay[static_cast<size_t>(cluster.rank())] = world;
      Trainer trainer(
          Sequential({6}, {dense(8, relu), dense(3)}),
          {.loss = softmax_cross_entropy(), .lanes = 1, .cluster = cluster, .strategy = strategy});
      FitOptions options{.epochs = 2, .batch = 16};
      if (cluster.rank() == 1 && !honest) options.callbacks = {std::make_shared<Disorder>(options)};
      trainer.fit(data, options);
      EXPECT_EQ(trainer.summary().samples_unique, 80u);
    });
  };
  const StrategyOptions async{.name = "parameter_server", .consistency = "async"};
  const StrategyOptions local{.name = "local_sgd", .period = 2};
  for (const StrategyOptions& strategy : {async, local}) {
    SCOPED_TRACE(strategy.name);
    for (const std::string& error : errors_of(strategy, true)) EXPECT_EQ(error, "");
    const std::vector<std::string> errors = errors_of(strategy, false);
    for (const size_t rank : {size_t{0}, size_t{1}})
      EXPECT_THAT(errors[rank], testing::ContainsRegex("worker " + std::to_string(1 - rank) +
                                                       " was lent the samples at places [0-9]+ … "
                                                       "[0-9]+ of the epoch, and has computed"));
  }
}

TEST(Workers, EvaluateTogetherToTheNumbersOfOne) {
  const data::Dataset data =
      data::synthetic({.samples = 101, .features = {6}, .classes = 3}).cached();
  const auto evaluate = [&](const Cluster& cluster) {
    Trainer trainer(
        Sequential({6}, {dense(8, relu), dense(3)}),
        {.loss = softmax_cross_entropy(), .lanes = 1, .micro_batch = 8, .cluster = cluster});
    return trainer.evaluate(data);
  };
  const Evaluation alone = evaluate(Cluster());
  for (const std::string& error : run_workers(3, [&](const std::shared_ptr<World>& world) {
         const Evaluation together = evaluate(Cluster(world));
         EXPECT_EQ(together["loss"], alone["loss"]);
         EXPECT_EQ(together["accuracy"], alone["accuracy"]);
       })) {
    EXPECT_EQ(error, "");
  }
}

}  // namespace
}  // namespace starling
