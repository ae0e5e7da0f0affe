#include "engine/late_gradients.h"

#include <gtest/gtest.h>

#include "engine/executor.h"
#include "engine/operators_testing.h"
#include "engine/plan_testing.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

using namespace testing_plans;

// Two wide layers and a small one.
Graph wide(const Shape& input, int64_t units, bool frozen = false) {
  Graph graph;
  const ValueId x = graph.add_input(input);
  const ValueId first = graph.add(dense(units), {x}, "", {.trainable = !frozen});
  graph.add(dense(3), {graph.add(dense(600), {graph.add(relu(), {first})})});
  return graph;
}

std::vector<std::string> late_slices(const Graph& graph, int64_t samples, int shards) {
  const ParameterSpace space = space_of(graph);
  std::vector<std::string> names;
  const LateLayout layout(graph, space, samples, shards);
  for (const LateProduct& product : layout.products())
    names.push_back(space.slices()[product.slice].name);
  return names;
}

using Names = std::vector<std::string>;

TEST(LateLayout, HasTheLargeDenseWeightsThatAreTrained) {
  EXPECT_EQ(late_slices(wide({600}, 500), 32, 8), (Names{"dense_2.weight", "dense_1.weight"}));
  EXPECT_EQ(late_slices(wide({600}, 500, true), 32, 8), Names{"dense_2.weight"});
  EXPECT_EQ(late_slices(wide({20}, 500), 32, 8), Names{"dense_2.weight"});
}

TEST(LateLayout, IsForStepsOfEqualShardsWhoseSumsRegistersJoin) {
  const Graph graph = wide({600}, 500);
  EXPECT_EQ(late_slices(graph, 32, 1).size(), 2u);
  EXPECT_EQ(late_slices(graph, 512, 2).size(), 2u);
  EXPECT_EQ(late_slices(graph, 33, 2), Names{}) << "one has a row more";
  EXPECT_EQ(late_slices(graph, 33, 3), Names{}) << "no tree of equal halves";
  EXPECT_EQ(late_slices(graph, 1024, 4), Names{}) << "too many rows to pay";
  EXPECT_EQ(late_slices(wide({5, 600}, 500), 64, 8).size(), 2u);
  EXPECT_EQ(late_slices(wide({5, 600}, 500), 256, 8), Names{}) << "five rows a sample";
}

TEST(LateLayout, PlacesOperandsApart) {
  const Graph graph = wide({3, 601}, 499);
  const ParameterSpace space = space_of(graph);
  const LateLayout layout(graph, space, 16, 4);
  struct Place {
    size_t first, last;
  };
  std::vector<Place> places;
  for (const LateProduct& p : layout.products()) {
    const int64_t rows = 16 * p.sample_rows;
    places.push_back({p.x, p.x + static_cast<size_t>(rows * p.in)});
    places.push_back({p.dz, p.dz + static_cast<size_t>(rows * p.out)});
  }
  ASSERT_EQ(places.size(), 4u);
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.first < b.first; });
  for (size_t i = 0; i + 1 < places.size(); ++i) EXPECT_LE(places[i].last, places[i + 1].first);
  EXPECT_LE(places.back().last, layout.floats());
}

struct Case {
  Shape input;
  int64_t units;
  int64_t samples;
  int shards, lanes;
  Precision precision;
};

// The whole gradient: that of the stacks joined, with what is late computed piece by piece.
Floats gradient_of(const Rig& rig, const Case& c, bool late) {
  Executor executor(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(),
                    {.lanes = c.lanes, .shards = c.shards, .precision = c.precision});
  Buffer<float> area;
  if (late) {
    executor.use_memory({.late = [&](size_t floats) {
      area = Buffer<float>(floats);
      std::fill(area.begin(), area.end(), std::numeric_limits<float>::quiet_NaN());
      return area.data();
    }});
  }
  executor.gradient(
      {.samples = rig.samples, .features = rig.features.data(), .labels = rig.labels.data()});
  EXPECT_EQ(executor.late() != nullptr, late);
  EXPECT_FALSE(executor.lanes().raised());
  Floats sum(rig.space.total_floats());
  std::vector<const float*> stacks(executor.gradients().begin(), executor.gradients().end());
  tree_sum(stacks, sum.size(), sum.data());
  if (!late) return rig.only_parameters(sum);
  executor.lanes().run([&](int lane) {
    const auto products = executor.late()->layout().products();
    for (size_t i = static_cast<size_t>(lane); i < products.size();
         i += static_cast<size_t>(c.lanes)) {
      const Slice& slice = rig.space.slices()[products[i].slice];
      // From the middle of rows on, as blocks begin.
      for (size_t at = 0; at < slice.size; at = std::min(at + 4096, slice.size)) {
        const size_t end = std::min(at + 4096, slice.size);
        const LateGradients::Piece piece = executor.late()->compute(lane, products[i], at, end);
        EXPECT_LE(piece.first, at);
        EXPECT_GE(piece.last, end);
        std::copy_n(piece.at + (at - piece.first), end - at, sum.data() + slice.offset + at);
      }
    }
  });
  return rig.only_parameters(sum);
}

TEST(LateGradients, HaveTheBitsOfThoseThatAreComputedWithTheShards) {
  for (const Case& c : {Case{{600}, 500, 32, 1, 1, Precision::kF32},
                        {{600}, 500, 32, 2, 2, Precision::kF32},
                        {{600}, 500, 32, 8, 1, Precision::kF32},
                        {{600}, 500, 32, 8, 2, Precision::kF32},
                        {{600}, 500, 32, 8, 4, Precision::kBf16},
                        {{3, 601}, 499, 24, 8, 2, Precision::kF32},
                        {{3, 601}, 499, 24, 4, 2, Precision::kBf16},
                        {{5000}, 61, 8, 4, 2, Precision::kF32},      // rows longer than a block
                        {{300000}, 2, 4, 2, 1, Precision::kF32}}) {  // and nearly than a piece
    SCOPED_TRACE(testing::Message()
                 << c.units << " units, " << c.samples << " samples, " << c.shards
                 << " shards, lanes: " << c.lanes << ", " << precision_name(c.precision));
    const Rig rig(wide(c.input, c.units), mean_squared_error(), c.samples);
    EXPECT_EQ(gradient_of(rig, c, true), gradient_of(rig, c, false));
  }
}

// Nobody computes a late gradient before the first weights change: what might overflow raises the
// flag with the shards. Here the large feature has no weight, so that nothing else overflows.
TEST(LateGradients, WhatMightOverflowRaisesTheFlagWithTheShards) {
  constexpr size_t kFeature = 7, kFeatures = 600;
  Rig rig(wide({kFeatures}, 500), mean_squared_error(), 32);
  const Slice& slice = *rig.space.find("dense_1.weight");
  for (size_t i = kFeature; i < slice.size; i += kFeatures) rig.weights[slice.offset + i] = 0;
  const auto raised = [&](float feature) {
    rig.features[kFeature] = feature;
    Executor executor(rig.graph, rig.loss, {}, rig.space, rig.moments, rig.weights.data(),
                      {.shards = 2});
    Buffer<float> area;
    executor.use_memory({.late = [&](size_t floats) {
      area = Buffer<float>(floats);
      return area.data();
    }});
    executor.gradient(
        {.samples = rig.samples, .features = rig.features.data(), .labels = rig.labels.data()});
    return executor.lanes().raised();
  };
  EXPECT_FALSE(raised(1e10f));
  EXPECT_TRUE(raised(3e38f));
}

}  // namespace
}  // namespace starling
