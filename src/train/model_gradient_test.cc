// The gradient of whole models, as the executor hands it to the optimizer, against differences of
// the loss: every layer at once, along random directions.
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "engine/executor.h"
#include "tensor/tree_sum.h"
#include "train/fit_testing.h"
#include "train/state.h"

namespace starling {
namespace {

struct GradientCase {
  const char* name;
  Model model;
};
void PrintTo(const GradientCase& c, std::ostream* out) { *out << c.name; }

class ModelGradient : public testing::TestWithParam<GradientCase> {
 protected:
  static constexpr uint64_t kRows = 12;

  void SetUp() override {
    const data::Dataset data = small_data(kRows);
    features_.resize(kRows * 36);
    labels_.resize(kRows);
    for (uint64_t i = 0; i < kRows; ++i) ids_.push_back(i);
    data.read(ids_, features_.data(), labels_.data());
  }

  // The mean loss of the batch, and its gradient with respect to all weights.
  double loss(Executor& executor, std::vector<double>* gradient = nullptr) {
    executor.refresh();
    executor.gradient(
        {.samples = ids_, .features = features_.data(), .labels = labels_.data(), .epoch = 1});
    if (gradient != nullptr) {
      for (const float* shard : executor.gradients()) {
        for (size_t i = 0; i < gradient->size(); ++i) (*gradient)[i] += double{shard[i]};
      }
    }
    return executor.board().total().loss / static_cast<double>(kRows);
  }

  std::vector<float> features_, labels_;
  std::vector<uint64_t> ids_;
};

TEST_P(ModelGradient, AgreesWithDifferences) {
  const Graph& graph = GetParam().model.graph();
  TrainState state(graph, sgd(0.1), 4);
  for (const Slice& slice : state.space.slices()) {  // away from the kinks of relu at zero
    for (size_t i = 0; i < slice.size; ++i) state.weights[slice.offset + i] += 0.01f;
  }
  Executor executor(graph, softmax_cross_entropy(), {}, state.space, state.moments,
                    state.weights.data(), {.lanes = 2, .shards = 2, .micro_batch = 4, .seed = 8});
  std::vector<double> gradient(state.space.total_floats(), 0.0);
  loss(executor, &gradient);

  const std::vector<float> start(state.weights.begin(), state.weights.end());
  constexpr double kStep = 1e-4;
  for (const Slice& slice : state.space.slices()) {
    const RandomStream stream(slice.offset, Draw::kSynthetic);
    std::vector<double> direction(slice.size);
    double expected = 0, length = 0;
    for (size_t i = 0; i < slice.size; ++i) {
      direction[i] = 2 * double{stream.uniform(i)} - 1;
      expected += direction[i] * gradient[slice.offset + i];
      length += direction[i] * direction[i];
    }
    const double step = kStep / std::sqrt(length);
    const auto loss_at = [&](double distance) {
      for (size_t i = 0; i < slice.size; ++i) {
        state.weights[slice.offset + i] =
            static_cast<float>(double{start[slice.offset + i]} + distance * direction[i]);
      }
      return loss(executor);
    };
    const double actual = (loss_at(step) - loss_at(-step)) / (2 * step);
    loss_at(0);
    // Losses are f32: about 1e-7 of rounding per sample over a way of 2e-4, and relus that bend.
    EXPECT_NEAR(actual, expected, 0.01 * std::abs(expected) + 1e-3 * std::sqrt(length))
        << slice.name;
  }
}

TEST_P(ModelGradient, OfShardsThatAddUpInPlaceHasTheBitsOfTheTree) {
  const Graph& graph = GetParam().model.graph();
  TrainState state(graph, sgd(0.1), 4);
  constexpr int kShards = 4;
  const auto sum_with = [&](int lanes) {
    Executor executor(graph, softmax_cross_entropy(), {}, state.space, state.moments,
                      state.weights.data(),
                      {.lanes = lanes, .shards = kShards, .micro_batch = kRows, .seed = 8});
    loss(executor);
    EXPECT_EQ(executor.stacks().size() < kShards, lanes == 1);
    std::vector<float> sum(state.space.total_floats());
    const std::vector<const float*> stacks(executor.gradients().begin(),
                                           executor.gradients().end());
    tree_sum(stacks, sum.size(), sum.data());
    return sum;
  };
  const std::vector<float> together = sum_with(1), apart = sum_with(kShards);
  EXPECT_EQ(std::memcmp(together.data(), apart.data(), apart.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ModelGradient,
    testing::Values(
        GradientCase{"Mlp", Sequential({6, 6, 1}, {flatten(), dense(16, gelu), dense(12, sigmoid),
                                                   dense(8, leaky_relu()), dense(4)})},
        GradientCase{"Cnn", small_cnn()},
        GradientCase{
            "Residual",
            Sequential({6, 6, 1},
                       {conv2d(8, 3, linear, {.padding = same}), batch_norm(), relu,
                        residual({conv2d(8, 3, relu, {.padding = same, .groups = 2}),
                                  conv2d(8, 3, linear, {.padding = same})},
                                 relu),
                        residual({conv2d(12, 3, tanh, {.stride = 2, .padding = same}),
                                  batch_norm()},
                                 relu, {conv2d(12, 1, linear, {.stride = 2})}),
                        average_pool2d(2, {.stride = 1}), global_average_pool2d(), dense(4)})}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling
