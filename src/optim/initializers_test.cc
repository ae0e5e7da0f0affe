#include "optim/initializers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

std::vector<float> draw(const std::string& initializer, const Shape& shape, uint64_t seed = 1,
                        const std::string& name = "layer.weight") {
  ParameterSpace space;
  space.add(name, shape, {.initializer = initializer, .fan_in = 300, .fan_out = 100});
  std::vector<float> weights(space.slices()[0].size, 99.0f);
  initialize(space.slices()[0], seed, weights.data());
  return weights;
}

double deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (float v : values) {
    sum += v;
    squares += double{v} * v;
  }
  const double n = static_cast<double>(values.size()), mean = sum / n;
  EXPECT_NEAR(mean, 0, 4 * std::sqrt(squares / n / n));
  return std::sqrt(squares / n - mean * mean);
}

TEST(Initializers, HaveTheDeviationOfTheirFormula) {
  const Shape shape{300, 300};
  const auto expect = [&](const char* name, double expected) {
    EXPECT_NEAR(deviation(draw(name, shape)), expected, 0.01 * expected) << name;
  };
  expect("glorot_uniform", std::sqrt(2.0 / 400));
  expect("glorot_normal", std::sqrt(2.0 / 400));
  expect("he_uniform", std::sqrt(2.0 / 300));
  expect("he_normal", std::sqrt(2.0 / 300));
  expect("lecun_uniform", std::sqrt(1.0 / 300));
  expect("lecun_normal", std::sqrt(1.0 / 300));
  expect("uniform", 0.05 / std::sqrt(3.0));
  expect("normal", 0.05);
}

TEST(Initializers, UniformFillsItsRangeAndStaysInside) {
  const std::vector<float> weights = draw("he_uniform", {100, 100});
  const float limit = static_cast<float>(std::sqrt(6.0 / 300));
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  EXPECT_GE(*low, -limit);
  EXPECT_LE(*high, limit);
  EXPECT_LT(*low, -0.99f * limit);
  EXPECT_GT(*high, 0.99f * limit);
}

TEST(Initializers, ZerosAndOnesAreConstant) {
  EXPECT_EQ(draw("zeros", {5}), std::vector<float>(5, 0.0f));
  EXPECT_EQ(draw("ones", {5}), std::vector<float>(5, 1.0f));
}

TEST(Initializers, WeightsAreAFunctionOfSeedNameAndElement) {
  for (std::string_view view : initializer_names()) {
    const std::string initializer(view);
    const std::vector<float> weights = draw(initializer, {20, 30});
    EXPECT_EQ(draw(initializer, {20, 30}), weights);
    if (initializer == "zeros" || initializer == "ones") continue;
    EXPECT_NE(draw(initializer, {20, 30}, 2), weights) << initializer;
    EXPECT_NE(draw(initializer, {20, 30}, 1, "other"), weights) << initializer;
  }
  const RandomStream stream(1, Draw::kInitialize, 0, hash_name("layer.weight"));
  const std::vector<float> uniform = draw("uniform", {7}), normal = draw("normal", {7});
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(uniform[i], (2 * stream.uniform(i) - 1) * 0.05f);
    EXPECT_EQ(normal[i], stream.normal(i) * 0.05f);
  }
}

TEST(Initializers, OrthogonalRowsOrColumnsAreOrthonormal) {
  for (const Shape& shape : {Shape{20, 30}, Shape{30, 20}, Shape{25, 25}, Shape{8, 3, 3, 2}}) {
    const std::vector<float> w = draw("orthogonal", shape);
    const size_t rows = static_cast<size_t>(shape[0]), columns = w.size() / rows;
    const bool by_rows = rows <= columns;
    const size_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
    const auto at = [&](size_t k, size_t i) {
      return by_rows ? w[k * columns + i] : w[i * columns + k];
    };
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < count; ++b) {
        double product = 0;
        for (size_t i = 0; i < length; ++i) product += double{at(a, i)} * at(b, i);
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-6);
      }
    }
  }
  EXPECT_THROW(draw("orthogonal", {10}), Error);
}

TEST(Initializers, UnknownNameIsRefusedWithAllNames) {
  const std::string message = refusal([] { draw("xavier", {3}); });
  EXPECT_THAT(message, testing::HasSubstr("\"xavier\""));
  for (std::string_view name : initializer_names())
    EXPECT_THAT(message, testing::HasSubstr(std::string(name)));
}

}  // namespace
}  // namespace starling
