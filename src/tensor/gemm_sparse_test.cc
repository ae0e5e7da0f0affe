#include "tensor/gemm_sparse.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <limits>

#include "tensor/gemm_testing.h"

namespace starling {
namespace {

// Of every four elements of a, `zeros` are zero: of either sign.
Product with_zeros(const GemmShape& shape, bool a_by_rows, bool b_by_rows, double zeros) {
  Product product(shape, a_by_rows, b_by_rows);
  const RandomStream stream(3, Draw::kSynthetic);
  for (size_t i = 0; i < product.a_floats.size(); ++i) {
    if (4 * stream.uniform(i) < zeros) product.a_floats[i] = i % 5 == 0 ? -0.0f : 0.0f;
  }
  return product;
}

std::vector<uint32_t> skipping(const Product& product, bool accumulate) {
  return bits(product.run(accumulate, gemm_sparse_scratch_floats(product.shape), gemm_sparse));
}

// By so few rows at a time that nothing is skipped.
std::vector<uint32_t> multiplying(const Product& product, bool accumulate) {
  static constexpr int64_t kRows = 30;
  const auto by_rows = [](const GemmShape& shape, const MatrixView& a, const MatrixView& b,
                          bool add, float* c, float* scratch) {
    for (int64_t i = 0; i < shape.m; i += kRows) {
      GemmShape few = shape;
      few.m = std::min(kRows, shape.m - i);
      const MatrixView rows{a.data + i * a.row_stride, a.row_stride, a.column_stride};
      EXPECT_FALSE(gemm_sparse_pays(few, rows));
      gemm(few, rows, b, add, c + i * shape.n, scratch);
    }
  };
  return bits(product.run(accumulate, gemm_scratch_floats(product.shape), by_rows));
}

TEST(GemmSparse, HasTheBitsOfTheProductOfAllElements) {
  for_every_target([] {
    for (const bool a_by_rows : {true, false}) {
      for (const bool b_by_rows : {true, false}) {
        for (const int64_t m : {64, 300}) {
          for (const int64_t n : {101, 208}) {
            for (const int64_t k : {1, 33, 400}) {
              const Product product = with_zeros({m, n, k}, a_by_rows, b_by_rows, 2);
              for (const bool accumulate : {false, true}) {
                ASSERT_EQ(skipping(product, accumulate), multiplying(product, accumulate))
                    << m << "×" << n << "×" << k << " layouts " << a_by_rows << b_by_rows;
              }
            }
          }
        }
      }
    }
  });
}

TEST(GemmSparse, ShardsAlongKAreJoinedAsInTheProductOfAllElements) {
  for_every_target([] {
    for (const int64_t shards : {2, 8, 16}) {
      for (const int64_t depth : {16, 70}) {
        const Product product = with_zeros(
            {.m = 70, .n = 230, .k = shards * depth, .depth_shards = shards}, false, true, 2);
        ASSERT_EQ(skipping(product, true), multiplying(product, true))
            << shards << " shards of " << depth;
      }
    }
  });
}

TEST(GemmSparse, AllOrNothingMayBeZero) {
  for (const double zeros : {0.0, 4.0}) {
    const Product product = with_zeros({100, 200, 90}, true, true, zeros);
    EXPECT_EQ(skipping(product, false), multiplying(product, false));
  }
}

// A sum that has become −0 by underflow turns to +0 when a zero is added, and stays if it is not.
TEST(GemmSparse, SumsThatUnderflowHaveTheSameSignOfZero) {
  for (const bool flush : {false, true}) {
    const unsigned before = _mm_getcsr();
    if (flush) _mm_setcsr(before | _MM_FLUSH_ZERO_ON);
    for (const bool accumulate : {false, true}) {
      Product product = with_zeros({80, 120, 400}, true, true, 2);
      for (float& value : product.a_floats) value *= 1e-30f;
      for (float& value : product.b_floats) value *= 1e-30f;
      const auto expected = multiplying(product, accumulate);
      EXPECT_EQ(skipping(product, accumulate), expected);
      if (!accumulate) {
        EXPECT_EQ(expected, std::vector<uint32_t>(expected.size(), 0));
      }
    }
    _mm_setcsr(before);
  }
}

TEST(GemmSparse, WhatIsNotFiniteIsNotSkipped) {
  Product product = with_zeros({64, 96, 50}, true, true, 2);
  product.a_floats[3] = std::numeric_limits<float>::quiet_NaN();
  product.a_floats[50 + 4] = std::numeric_limits<float>::infinity();
  const std::vector<float> c =
      product.run(false, gemm_sparse_scratch_floats(product.shape), gemm_sparse);
  for (size_t j = 0; j < 96; ++j) {
    EXPECT_TRUE(std::isnan(c[j]));
    EXPECT_TRUE(std::isinf(c[96 + j]));
    EXPECT_TRUE(std::isfinite(c[2 * 96 + j]));
  }
}

// What is multiplied with zeros alone shows whether they are.
TEST(GemmSparse, IsWhatGemmDoesWithManyZeros) {
  for (const double zeros : {2.0, 0.5}) {
    Product product = with_zeros({64, 96, 50}, true, true, zeros);
    for (size_t i = 0; i < 64; ++i) product.a_floats[i * 50 + 7] = 0;
    product.b_floats[7 * 96] = std::numeric_limits<float>::infinity();
    const float sum = product.run(false, gemm_scratch_floats(product.shape), gemm)[0];
    EXPECT_EQ(std::isfinite(sum), zeros == 2.0);
  }
}

TEST(GemmSparse, PaysForManyZerosInLargeProducts) {
  const auto pays = [](const GemmShape& shape, double zeros) {
    const Product product = with_zeros(shape, false, true, zeros);
    return gemm_sparse_pays(shape, product.a);
  };
  EXPECT_TRUE(pays({128, 256, 100}, 2));
  EXPECT_FALSE(pays({128, 256, 100}, 0.5));
  EXPECT_FALSE(pays({16, 256, 100}, 2));
  EXPECT_FALSE(pays({128, 10, 100}, 2));
  EXPECT_EQ(gemm_sparse_scratch_floats({16, 256, 100}), 0u);
}

}  // namespace
}  // namespace starling
