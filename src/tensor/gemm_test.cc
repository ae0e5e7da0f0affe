#include "tensor/gemm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

std::vector<float> numbers(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, Draw::kSynthetic);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * stream.uniform(i) - 1;
  return values;
}

struct Product {
  Product(GemmShape s, bool a_by_rows, bool b_by_rows)
      : shape(s),
        a_floats(numbers(s.m * s.k, 1)),
        b_floats(numbers(s.k * s.n, 2)),
        a{a_floats.data(), a_by_rows ? s.k : 1, a_by_rows ? 1 : s.m},
        b{b_floats.data(), b_by_rows ? s.n : 1, b_by_rows ? 1 : s.k} {}

  std::vector<float> run(bool accumulate) const {
    std::vector<float> c(static_cast<size_t>(shape.m * shape.n), 0.5f);
    std::vector<float> scratch(gemm_scratch_floats(shape), std::nanf(""));
    gemm(shape, a, b, accumulate, c.data(), scratch.data());
    return c;
  }

  double expected(int64_t i, int64_t j, bool accumulate) const {
    double sum = accumulate ? 0.5 : 0;
    for (int64_t k = 0; k < shape.k; ++k) {
      sum += double{a.data[i * a.row_stride + k * a.column_stride]} *
             b.data[k * b.row_stride + j * b.column_stride];
    }
    return sum;
  }

  GemmShape shape;
  std::vector<float> a_floats, b_floats;
  MatrixView a, b;
};

constexpr int64_t kSizes[] = {1, 2, 3, 5, 10, 16, 17, 31, 70};

TEST(Gemm, MatchesThePlainSumForEveryLayout) {
  for (const bool a_by_rows : {true, false}) {
    for (const bool b_by_rows : {true, false}) {
      for (const int64_t m : kSizes) {
        for (const int64_t n : kSizes) {
          for (const int64_t k : {1, 3, 8, 257, 600}) {
            const Product product({m, n, k}, a_by_rows, b_by_rows);
            for (const bool accumulate : {false, true}) {
              const std::vector<float> c = product.run(accumulate);
              for (const auto& [i, j] : {std::pair<int64_t, int64_t>{0, 0},
                                         {m - 1, n - 1},
                                         {m / 2, n / 3},
                                         {0, n - 1}}) {
                ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], product.expected(i, j, accumulate),
                            1e-4)
                    << m << "×" << n << "×" << k << " at " << i << ", " << j << " layouts "
                    << a_by_rows << b_by_rows;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, WideProductsAreRightEverywhere) {
  for (const bool b_by_rows : {true, false}) {
    const Product product({29, 1100, 300}, true, b_by_rows);
    const std::vector<float> c = product.run(true);
    for (int64_t i = 0; i < 29; ++i) {
      for (int64_t j = 0; j < 1100; ++j)
        ASSERT_NEAR(c[static_cast<size_t>(i * 1100 + j)], product.expected(i, j, true), 1e-4);
    }
  }
}

TEST(Gemm, StackedRowsHaveTheBitsOfEachShardAlone) {
  for (const bool b_by_rows : {true, false}) {
    for (const int64_t rows : {1, 8, 20, 40, 110}) {
      for (const int64_t n : {10, 70}) {
        const Product all({.m = 4 * rows, .n = n, .k = 500, .row_shards = 4}, true, b_by_rows);
        const std::vector<float> together = all.run(false);
        for (int64_t shard = 0; shard < 4; ++shard) {
          Product one({rows, n, 500}, true, b_by_rows);
          one.a = {all.a.data + shard * rows * 500, 500, 1};
          const auto begin = together.begin() + shard * rows * n;
          EXPECT_EQ(one.run(false), std::vector<float>(begin, begin + rows * n));
        }
      }
    }
  }
}

TEST(Gemm, ShardsAlongKAreJoinedByTheTree) {
  constexpr int64_t kM = 17, kN = 40;
  for (const int64_t shards : {2, 4, 8, 32}) {
    for (const int64_t rows : {1, 7, 32}) {
      const Product all({.m = kM, .n = kN, .k = shards * rows, .depth_shards = shards}, false,
                        true);
      std::vector<std::vector<float>> parts;
      std::vector<const float*> at;
      for (int64_t shard = 0; shard < shards; ++shard) {
        Product one({kM, kN, rows}, false, true);
        one.a = {all.a.data + shard * rows * kM, 1, kM};
        one.b = {all.b.data + shard * rows * kN, kN, 1};
        parts.push_back(one.run(false));
        at.push_back(parts.back().data());
      }
      std::vector<float> expected(static_cast<size_t>(kM * kN));
      tree_sum(at, expected.size(), expected.data());
      EXPECT_EQ(all.run(false), expected) << shards << " shards of " << rows;
    }
  }
}

TEST(Gemm, BitsDoNotDependOnTheVectorWidth) {
  // Only targets with a fused multiply-add can agree.
  const int64_t fused = hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3);
  for (const bool b_by_rows : {true, false}) {
    for (const GemmShape shape : {GemmShape{8, 10, 700}, GemmShape{70, 90, 700}}) {
      const Product product(shape, true, b_by_rows);
      std::vector<std::vector<float>> results;
      for (int64_t targets = fused; targets != 0; targets &= targets - 1) {
        hwy::SetSupportedTargetsForTest(targets & -targets);
        results.push_back(product.run(false));
      }
      hwy::SetSupportedTargetsForTest(0);
      for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
    }
  }
}

}  // namespace
}  // namespace starling
