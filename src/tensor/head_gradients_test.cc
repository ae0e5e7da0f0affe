#include "tensor/head_gradients.h"

#include <gtest/gtest.h>

#include "tensor/gemm.h"
#include "tensor/gemm_testing.h"

namespace starling {
namespace {

struct Layer {
  HeadShape shape;
  std::vector<float> x, w, dz, dw_before;
};

Layer some_layer(const HeadShape& shape) {
  const auto [rows, in, units] = shape;
  return {.shape = shape,
          .x = numbers(rows * in, 1),
          .w = numbers(units * in, 2),
          .dz = numbers(rows * units, 3),
          .dw_before = numbers(units * in, 4)};
}

struct Gradients {
  std::vector<float> dw, dx;
};

Gradients outset(const Layer& layer) {
  return {layer.dw_before, std::vector<float>(layer.x.size(), 7.0f)};
}

Gradients in_one_pass(const Layer& layer, bool accumulate) {
  Gradients made = outset(layer);
  head_gradients(layer.shape,
                 {.x = layer.x.data(),
                  .w = layer.w.data(),
                  .dz = layer.dz.data(),
                  .dw = made.dw.data(),
                  .dx = made.dx.data()},
                 accumulate);
  return made;
}

Gradients as_products(const Layer& layer, bool accumulate) {
  const auto [rows, in, units] = layer.shape;
  Gradients made = outset(layer);
  const auto multiply = [](const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                           bool adds, std::vector<float>& c) {
    std::vector<float> scratch(gemm_scratch_floats(shape));
    gemm(shape, a, b, adds, c.data(), scratch.data());
  };
  multiply({.m = units, .n = in, .k = rows}, {layer.dz.data(), 1, units}, {layer.x.data(), in, 1},
           accumulate, made.dw);
  multiply({.m = rows, .n = in, .k = units}, {layer.dz.data(), units, 1}, {layer.w.data(), in, 1},
           false, made.dx);
  return made;
}

void expect_the_bits_of_the_products(const Layer& layer) {
  for (const bool accumulate : {false, true}) {
    const Gradients made = in_one_pass(layer, accumulate);
    const Gradients expected = as_products(layer, accumulate);
    const HeadShape& s = layer.shape;
    ASSERT_EQ(bits(made.dw), bits(expected.dw)) << s.rows << "×" << s.in << "×" << s.units;
    ASSERT_EQ(bits(made.dx), bits(expected.dx)) << s.rows << "×" << s.in << "×" << s.units;
  }
}

TEST(HeadGradients, HaveTheBitsOfTheProductsForAnyShapeAndInstructionSet) {
  for_every_target([] {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 33, 64}) {
      for (const int64_t in : {256, 257, 263, 264, 271, 283, 301}) {
        for (const int64_t units : {1, 2, 10, 12})
          ASSERT_NO_FATAL_FAILURE(expect_the_bits_of_the_products(some_layer({rows, in, units})));
      }
    }
  });
}

TEST(HeadGradients, ZerosHaveTheSignOfTheProducts) {
  Layer layer = some_layer({.rows = 16, .in = 300, .units = 10});
  for (size_t i = 0; i < layer.x.size(); ++i) layer.x[i] = i % 3 == 0 ? layer.x[i] * 1e-30f : -0.0f;
  for (size_t i = 0; i < layer.dz.size(); ++i) layer.dz[i] *= i % 4 == 0 ? 1e-30f : 0.0f;
  for (float& value : layer.dw_before) value = -0.0f;
  expect_the_bits_of_the_products(layer);
}

TEST(HeadGradients, PayForFewUnitsAndRowsAndManyInputs) {
  EXPECT_TRUE(head_gradients_pay({.rows = 8, .in = 5408, .units = 10}));
  EXPECT_FALSE(head_gradients_pay({.rows = 8, .in = 5408, .units = 128}));
  EXPECT_FALSE(head_gradients_pay({.rows = 512, .in = 5408, .units = 10}));
  EXPECT_FALSE(head_gradients_pay({.rows = 8, .in = 16, .units = 10}));
}

}  // namespace
}  // namespace starling
