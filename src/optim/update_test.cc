#include "optim/update.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/random.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

using Kind = OptimizerKind;
using Floats = std::vector<float>;

Floats random_floats(size_t n, uint64_t stream, float scale = 1) {
  const RandomStream random(3, Draw::kSynthetic, 0, stream);
  Floats result(n);
  for (size_t i = 0; i < n; ++i) result[i] = scale * random.normal(i);
  return result;
}

// The weights and states of one block.
struct Model {
  Floats weights;
  std::array<Floats, kMaxStates> states;

  explicit Model(size_t n)
      : weights(random_floats(n, 100)), states{Floats(n, 0.0f), Floats(n, 0.0f)} {}

  bool update(const UpdateSettings& settings, std::optional<double> decay,
              const std::vector<Floats>& shards) {
    std::vector<const float*> gradients;
    for (const Floats& shard : shards) gradients.push_back(shard.data());
    std::array<float*, kMaxStates> pointers = {states[0].data(), states[1].data()};
    Floats summed(weights.size());
    if (gradients.size() > kTreeLeavesInRegisters) {
      tree_sum(gradients, summed.size(), summed.data());
      gradients = {summed.data()};
    }
    return update_block(settings, decay, gradients, weights.size(), weights.data(),
                        pointers.data());
  }
  friend bool operator==(const Model&, const Model&) = default;
};

// The formulas of PyTorch's documentation in f64, one element after another.
struct NaiveModel {
  std::vector<double> weights, first, second;

  explicit NaiveModel(const Model& model)
      : weights(model.weights.begin(), model.weights.end()),
        first(weights.size()),
        second(weights.size()) {}

  void update(const Optimizer& o, double rate, int t, const Floats& gradient) {
    for (size_t i = 0; i < weights.size(); ++i) {
      double g = gradient[i];
      double& w = weights[i];
      if (o.clip_value) g = std::min(std::max(g, -*o.clip_value), *o.clip_value);
      if (o.kind == Kind::kAdamW) {
        w -= rate * o.weight_decay * w;
      } else {
        g += o.weight_decay * w;
      }
      if (o.kind == Kind::kSgd) {
        w -= rate * g;
      } else if (o.kind == Kind::kMomentum || o.kind == Kind::kNesterov) {
        first[i] = o.momentum * first[i] + g;
        w -= rate * (o.kind == Kind::kNesterov ? g + o.momentum * first[i] : first[i]);
      } else {
        first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
        second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
        const double m = first[i] / (1 - std::pow(o.beta1, t));
        const double v = second[i] / (1 - std::pow(o.beta2, t));
        w -= rate * m / (std::sqrt(v) + o.epsilon);
      }
    }
  }
};

std::vector<Optimizer> all_optimizers() {
  return {sgd(0.1, {.weight_decay = 0.05}), momentum(0.05, {.momentum = 0.8, .weight_decay = 0.05}),
          nesterov(0.05, {.weight_decay = 0.05}), adam(0.01, {.weight_decay = 0.05}),
          adamw(0.01, {.beta1 = 0.85, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1})};
}

std::string name(const Optimizer& optimizer) { return std::string(optimizer_name(optimizer.kind)); }

// Ten updates from random gradients.
Model run(const Optimizer& optimizer, size_t n) {
  Model model(n);
  for (uint64_t step = 0; step < 10; ++step) {
    model.update(UpdateSettings(optimizer, optimizer.learning_rate, step), {},
                 {random_floats(n, step)});
  }
  return model;
}

void expect_near(const Floats& actual, const std::vector<double>& expected, const char* what) {
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-6 * (1 + std::fabs(expected[i]))) << what << " " << i;
  }
}

class EveryTarget : public testing::Test {
 protected:
  static void use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override { use(0); }
};

TEST_F(EveryTarget, FollowsTheFormulaOfEachOptimizer) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    use(target);
    for (const Optimizer& optimizer : all_optimizers()) {
      SCOPED_TRACE(name(optimizer));
      const Model model = run(optimizer, 1003);
      NaiveModel naive((Model(1003)));
      for (int step = 0; step < 10; ++step) {
        naive.update(optimizer, optimizer.learning_rate, step + 1,
                     random_floats(1003, static_cast<uint64_t>(step)));
      }
      expect_near(model.weights, naive.weights, "weight");
      if (state_count(optimizer.kind) > 0) expect_near(model.states[0], naive.first, "state 0");
      if (state_count(optimizer.kind) > 1) expect_near(model.states[1], naive.second, "state 1");
    }
  }
}

TEST_F(EveryTarget, VectorWidthDoesNotChangeBitsWhereMultiplyAddIsFused) {
  for (const Optimizer& optimizer : all_optimizers()) {
    std::vector<Model> results;
    for (int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if ((hwy::SupportedTargets() & target) == 0) continue;
      use(target);
      results.push_back(run(optimizer, 1003));
      use(0);
    }
    for (const Model& result : results) EXPECT_EQ(result, results[0]) << name(optimizer);
  }
}

TEST_F(EveryTarget, SquareSumsHaveTheSameBits) {
  for (size_t n : {1u, 15u, 16u, 1003u, 4096u}) {
    const Floats gradient = random_floats(n, 1);
    std::array<double, 16> accumulators{};
    for (size_t i = 0; i < n; ++i) accumulators[i % 16] += double{gradient[i]} * gradient[i];
    const double expected = tree_sum(accumulators);
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      use(target);
      EXPECT_EQ(block_square_sum(gradient.data(), n), expected);
      use(0);
    }
  }
}

TEST(Update, ElementsDoNotDependOnTheirPlaceInTheBlock) {
  for (const Optimizer& optimizer : all_optimizers()) {
    const Model whole = run(optimizer, 37);
    for (size_t n : {1u, 5u, 16u, 36u}) {
      const Model part = run(optimizer, n);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(part.weights[i], whole.weights[i]);
    }
  }
}

TEST(Update, ShardsAreSummedByTheTree) {
  const size_t n = 4096;
  for (const Optimizer& optimizer : all_optimizers()) {
    for (size_t count = 2; count <= 17; ++count) {
      std::vector<Floats> shards;
      for (size_t k = 0; k < count; ++k) {
        shards.push_back(random_floats(n, k, std::ldexp(1.0f, static_cast<int>(k % 5))));
      }
      Floats sum(n), leaves(count);
      for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < count; ++k) leaves[k] = shards[k][i];
        sum[i] = tree_reduce<float>(leaves, std::plus<float>());
      }
      const UpdateSettings settings(optimizer, 0.01, 0);
      Model sharded(n), whole(n);
      EXPECT_TRUE(sharded.update(settings, {}, shards));
      EXPECT_TRUE(whole.update(settings, {}, {sum}));
      EXPECT_EQ(sharded, whole) << count << " shards";
    }
  }
}

// Sharing is about where numbers lie: it changes none.
TEST(Update, CopiesGetTheNewWeightsAndClaimsChangeNothing) {
  constexpr size_t kOffset = 32;
  for (const size_t n : {size_t{7}, size_t{64}, size_t{1000}}) {
    SCOPED_TRACE(n);
    Model plain(n), shared(n);
    const std::vector<Floats> gradients = {random_floats(n, 1), random_floats(n, 2)};
    const UpdateSettings settings(adam(0.01), 0.01, 0);
    ASSERT_TRUE(plain.update(settings, std::nullopt, gradients));
    std::vector<Floats> claimed = gradients;
    const std::array<const float*, 2> at = {claimed[0].data(), claimed[1].data()};
    std::vector<Floats> copies(3, Floats(kOffset + n + 1, -1.0f));
    const std::array<float*, 3> places = {copies[0].data(), copies[1].data(), copies[2].data()};
    std::array<float*, kMaxStates> states = {shared.states[0].data(), shared.states[1].data()};
    ASSERT_TRUE(update_block(settings, std::nullopt, at, n, shared.weights.data(), states.data(),
                             {.copies = places, .offset = kOffset, .claimed = 0b10}));
    EXPECT_EQ(shared, plain);
    EXPECT_EQ(claimed, gradients);
    Floats wanted(kOffset + n + 1, -1.0f);
    std::copy(plain.weights.begin(), plain.weights.end(), wanted.begin() + kOffset);
    for (const Floats& copy : copies) EXPECT_EQ(copy, wanted);
  }
}

TEST(Update, EndsBeforeAValueThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Optimizer& optimizer : all_optimizers()) {
    const UpdateSettings settings(optimizer, 0.1, 0);
    for (float bad : {inf, -inf, std::nanf(""), -std::nanf("")}) {
      for (size_t n : {3u, 16u, 1003u}) {
        for (size_t at : {size_t{0}, n / 2, n - 1}) {
          std::vector<Floats> shards = {random_floats(n, 1), random_floats(n, 2)};
          Model model(n), good(n);
          good.update(settings, {}, shards);
          shards[1][at] = bad;
          EXPECT_FALSE(model.update(settings, {}, shards));
          const auto group = static_cast<std::ptrdiff_t>(at - at % UndoLog::kElements);
          const auto take_back = [&](Floats& values, const Floats& before) {
            std::copy(before.begin() + group, before.end(), values.begin() + group);
          };
          const Model before(n);
          take_back(good.weights, before.weights);
          for (size_t k = 0; k < kMaxStates; ++k) take_back(good.states[k], before.states[k]);
          EXPECT_EQ(model, good);
        }
      }
    }
    // Finite shards whose sum overflows.
    Model model(8);
    const Floats huge(8, 3e38f);
    EXPECT_FALSE(model.update(settings, {}, {huge, huge}));
    EXPECT_EQ(model, Model(8));
    EXPECT_TRUE(model.update(settings, {}, {Floats(8, 1e18f)}));
  }
}

TEST(Update, DecayAppliesOnlyWhereTheSliceWantsIt) {
  for (Optimizer optimizer : all_optimizers()) {
    const UpdateSettings decaying(optimizer, 0.1, 0);
    optimizer.weight_decay = 0;
    const UpdateSettings plain(optimizer, 0.1, 0);
    const std::vector<Floats> shards = {random_floats(100, 1)};
    Model exempt(100), decayed(100), reference(100);
    exempt.update(decaying, 0.0, shards);
    decayed.update(decaying, {}, shards);
    reference.update(plain, {}, shards);
    EXPECT_EQ(exempt, reference) << name(optimizer);
    EXPECT_NE(decayed.weights, reference.weights) << name(optimizer);
    // One of its own has the bits of an optimizer's.
    optimizer.weight_decay = 0.3;
    Model own(100), another(100);
    own.update(decaying, 0.3, shards);
    another.update(UpdateSettings(optimizer, 0.1, 0), {}, shards);
    EXPECT_EQ(own, another) << name(optimizer);
  }
}

TEST(Update, ClipsEveryValue) {
  const Optimizer optimizer = sgd(1.0, {.clip_value = 0.5});
  Model model(3);
  const Floats before = model.weights;
  model.update(UpdateSettings(optimizer, 1.0, 0), {}, {{-2.0f, 0.25f, 7.0f}});
  EXPECT_EQ(model.weights, (Floats{before[0] + 0.5f, before[1] - 0.25f, before[2] - 0.5f}));
}

TEST(Update, ClipsByTheNormOfAllParameters) {
  ParameterSpace space;
  for (int64_t size : {5000, 3, 9000}) space.add(std::to_string(size), {size}, {});
  const Floats gradient = random_floats(space.total_floats(), 1);
  std::vector<double> block_sums;
  double squares = 0;
  for (const Block& block : space.blocks()) {
    const float* const values = gradient.data() + block.offset;
    block_sums.push_back(block_square_sum(values, block.size));
    for (size_t i = 0; i < block.size; ++i) squares += double{values[i]} * values[i];
  }
  const double norm = global_norm(space, block_sums);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-9);
  EXPECT_EQ(clip_scale(norm, 2 * norm), 1.0f);
  EXPECT_NEAR(clip_scale(norm, 0.25), 0.25 / norm, 1e-7);
  EXPECT_EQ(global_norm(ParameterSpace(), {}), 0.0);

  UpdateSettings settings(sgd(1.0), 1.0, 0);
  settings.gradient_scale = 0.25f;
  Model scaled(2);
  const Floats before = scaled.weights;
  scaled.update(settings, {}, {{4.0f, -8.0f}});
  EXPECT_EQ(scaled.weights, (Floats{before[0] - 1.0f, before[1] + 2.0f}));
}

TEST(Update, NormIsSummedWithinEachParameterAndThenOverParameters) {
  ParameterSpace space;
  for (int64_t size : {4096 * 3, 4096, 4096 * 2}) space.add(std::to_string(size), {size}, {});
  const std::vector<double> sums = {1, 0x1p-53, 0x1p-53, 0x1p-52, 0x1p-53, 0x1p-53};
  const double expected = (((sums[0] + sums[1]) + sums[2]) + sums[3]) + (sums[4] + sums[5]);
  EXPECT_EQ(global_norm(space, sums), std::sqrt(expected));
}

TEST(Update, SquareSumTellsValuesThatAreNotFinite) {
  Floats gradient = random_floats(100, 1, 1e38f);
  EXPECT_TRUE(std::isfinite(block_square_sum(gradient.data(), 100)));
  gradient[99] = std::nanf("");
  EXPECT_FALSE(std::isfinite(block_square_sum(gradient.data(), 100)));
  gradient[99] = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(block_square_sum(gradient.data(), 100)));
}

TEST(Update, StatesHaveNames) {
  EXPECT_EQ(state_count(Kind::kSgd), 0);
  EXPECT_EQ(state_count(Kind::kMomentum), 1);
  EXPECT_EQ(state_count(Kind::kNesterov), 1);
  EXPECT_EQ(state_count(Kind::kAdam), 2);
  EXPECT_EQ(state_count(Kind::kAdamW), 2);
  EXPECT_STREQ(state_name(Kind::kNesterov, 0), "velocity");
  EXPECT_STREQ(state_name(Kind::kAdam, 0), "first_moment");
  EXPECT_STREQ(state_name(Kind::kAdamW, 1), "second_moment");
}

}  // namespace
}  // namespace starling
