// Where claims pay (base/claim.h), each of a few lanes has a copy of small weights to compute with,
// and nobody can tell from the numbers. Workers are threads here, and share memory.
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

TrainedWeights train_with_setter(const Model& model, const Cluster& cluster, int lanes) {
  const data::Dataset data =
      data::synthetic({.samples = 70, .features = model.input_shape(), .classes = 3}).cached();
  Trainer trainer(model, {.optimizer = adam(1e-2),
                          .loss = softmax_cross_entropy(),
                          .lanes = lanes,
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
    const TrainedWeights alone = train_with_setter(model, Cluster(), 1);
    struct Case {
      int workers, lanes;
      bool copied;
    };
    for (const auto& [workers, lanes, copied] :
         {Case{1, 2, true}, {2, 1, true}, {3, 1, true}, {2, 2, true}, {3, 2, false}}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, lanes: " + std::to_string(lanes));
      const auto expect = [&](const Cluster& cluster) {
        const TrainedWeights together = train_with_setter(model, cluster, lanes);
        const size_t copies = GetParam() && copied ? static_cast<size_t>(lanes) : 0;
        EXPECT_EQ(together.sha256, alone.sha256);
        EXPECT_EQ(together.copied, alone.copied + copies * alone.bytes);
      };
      if (workers == 1) {
        expect(Cluster());
        continue;
      }
      for (const std::string& error : run_workers(
               workers, [&](const std::shared_ptr<World>& world) { expect(Cluster(world)); },
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
