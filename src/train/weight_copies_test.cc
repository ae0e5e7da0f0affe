// Workers as threads that share memory: of small weights each has a copy to compute with where
// claims pay (base/claim.h), and nobody can tell from the numbers.
#include <gtest/gtest.h>

#include "base/claim.h"
#include "starling/starling.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

// Looks how much memory copies take; the chief sets a weight after every epoch.
class WeightSetter : public Callback {
 public:
  explicit WeightSetter(World& world) : world_(world) {}

  bool epoch_end(Trainer& trainer, const EpochRecord&) override {
    copied = trainer.memory().packed;
    if (world_.is_chief()) trainer.weights("dense_1.weight")[3] = 0.5f;
    world_.barrier("set");
    return true;
  }
  size_t copied = 0;  // bytes

 private:
  World& world_;
};

struct TrainedWeights {
  std::string sha256;
  size_t copied, bytes;
};

TrainedWeights train_with_setter(const Model& model, const Cluster& cluster) {
  const data::Dataset data =
      data::synthetic({.samples = 70, .features = model.input_shape(), .classes = 3}).cached();
  Trainer trainer(model, {.optimizer = adam(1e-2),
                          .loss = softmax_cross_entropy(),
                          .lanes = 1,
                          .shards = 4,
                          .cluster = cluster});
  const auto setter = std::make_shared<WeightSetter>(cluster.world());
  trainer.fit(data, {.epochs = 3, .batch = 16, .callbacks = {setter}});
  return {trainer.weights_sha256(), setter->copied, trainer.memory().weights};
}

class WeightCopies : public testing::TestWithParam<bool> {
 protected:
  ~WeightCopies() override { force_claims(std::nullopt); }

  void expect_the_bits_of_one(const Model& model) {
    force_claims(GetParam());
    const TrainedWeights alone = train_with_setter(model, Cluster());
    for (const int workers : {2, 3}) {
      SCOPED_TRACE(workers);
      for (const std::string& error : run_workers(
               workers,
               [&](const std::shared_ptr<World>& world) {
                 const TrainedWeights together = train_with_setter(model, Cluster(world));
                 EXPECT_EQ(together.sha256, alone.sha256);
                 EXPECT_EQ(together.copied, alone.copied + (GetParam() ? alone.bytes : 0));
               },
               FabricKind::kShm)) {
        EXPECT_EQ(error, "");
      }
    }
  }
};

TEST_P(WeightCopies, OfDenseLayersGiveTheBitsOfOne) {
  expect_the_bits_of_one(Sequential({40}, {dense(300, relu), dense(3)}));
}

TEST_P(WeightCopies, OfConvolutionsGiveTheBitsOfOne) {
  expect_the_bits_of_one(
      Sequential({12, 12, 1}, {conv2d(8, 3, relu), max_pool2d(2), flatten(), dense(3)}));
}

INSTANTIATE_TEST_SUITE_P(All, WeightCopies, testing::Bool(),
                         [](const auto& test) { return test.param ? "Copied" : "Shared"; });

}  // namespace
}  // namespace starling
