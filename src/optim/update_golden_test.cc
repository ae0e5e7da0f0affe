// Every optimizer over five steps against PyTorch's trajectory.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "optim/update.h"

namespace starling {
namespace {

using Floats = std::vector<float>;

// So many weights, with a decay of their own if it is set.
struct WeightGroup {
  size_t size;
  std::optional<double> weight_decay;
};

struct Trajectory {
  std::string name;
  Optimizer optimizer;
  std::vector<WeightGroup> groups;
  Floats weights;                 // before the first step
  std::vector<Floats> gradients;  // one per step
  std::vector<Floats> expected;   // the weights after each step
};
void PrintTo(const Trajectory& t, std::ostream* out) { *out << t.name; }

std::vector<Trajectory> load_trajectories() {
  const nlohmann::json file = golden::read_json("optimizers.json");
  std::vector<Trajectory> trajectories;
  for (const nlohmann::json& json : file.at("cases")) {
    const nlohmann::json& options = json.at("optimizer");
    Trajectory& t = trajectories.emplace_back();
    t.name = json.at("name");
    t.optimizer =
        optimizer_from_name(options.at("kind").get<std::string>(), options.at("learning_rate"));
    t.optimizer.momentum = options.value("momentum", t.optimizer.momentum);
    t.optimizer.beta1 = options.value("beta1", t.optimizer.beta1);
    t.optimizer.beta2 = options.value("beta2", t.optimizer.beta2);
    t.optimizer.epsilon = options.value("epsilon", t.optimizer.epsilon);
    t.optimizer.weight_decay = options.value("weight_decay", 0.0);
    for (const nlohmann::json& group : json.at("groups")) {
      t.groups.push_back({group.at(0), {}});
      if (!group.at(1).is_null()) t.groups.back().weight_decay = group.at(1).get<double>();
    }
    file.at("weights").get_to(t.weights);
    file.at("gradients").get_to(t.gradients);
    json.at("trajectory").get_to(t.expected);
  }
  return trajectories;
}

class UpdateGolden : public testing::TestWithParam<Trajectory> {
 protected:
  // Runs the trajectory with each gradient cut into `shards` equal parts, and checks every step.
  void check(size_t shards) const {
    const Trajectory& t = GetParam();
    ASSERT_EQ(t.expected.size(), t.gradients.size());
    Floats weights = t.weights;
    std::array<Floats, kMaxStates> states;
    states.fill(Floats(weights.size(), 0.0f));
    for (size_t step = 0; step < t.gradients.size(); ++step) {
      Floats part = t.gradients[step];
      for (float& g : part) g /= static_cast<float>(shards);
      const UpdateSettings settings(t.optimizer, rate(t.optimizer, step, t.gradients.size()), step);
      size_t at = 0;
      for (const WeightGroup& group : t.groups) {
        std::array<float*, kMaxStates> pointers = {states[0].data() + at, states[1].data() + at};
        const std::vector<const float*> gradients(shards, part.data() + at);
        ASSERT_TRUE(update_block(settings, group.weight_decay, gradients, group.size,
                                 weights.data() + at, pointers.data()));
        at += group.size;
      }
      ASSERT_EQ(at, weights.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        const float expected = t.expected[step][i];
        // A few roundings of f32 per step.
        ASSERT_NEAR(weights[i], expected, 1e-6f * std::max(1.0f, std::abs(expected)))
            << "step " << step << " element " << i;
      }
    }
  }
};

TEST_P(UpdateGolden, FollowsPyTorch) { check(1); }

// Halves and quarters are exact in f32: the sum of the shards is the whole gradient.
TEST_P(UpdateGolden, FollowsPyTorchFromFourShards) { check(4); }

INSTANTIATE_TEST_SUITE_P(Optimizers, UpdateGolden, testing::ValuesIn(load_trajectories()),
                         [](const auto& test) { return test.param.name; });

TEST(UpdateGoldenFile, HasEveryOptimizer) {
  std::vector<bool> seen(optimizer_names().size(), false);
  for (const Trajectory& t : load_trajectories())
    seen[static_cast<size_t>(t.optimizer.kind)] = true;
  for (size_t kind = 0; kind < seen.size(); ++kind)
    EXPECT_TRUE(seen[kind]) << optimizer_names()[kind];
}

}  // namespace
}  // namespace starling
