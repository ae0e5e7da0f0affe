#include "tensor/gemm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "tensor/gemm_bf16.h"
#include "tensor/gemm_testing.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

std::vector<float> run(const Product& product, bool accumulate) {
  return product.run(accumulate, gemm_scratch_floats(product.shape), gemm);
}
double expected(const Product& product, int64_t i, int64_t j, bool accumulate) {
  return product.expected(i, j, accumulate, [](float value) { return value; });
}

constexpr int64_t kSizes[] = {1, 2, 3, 5, 10, 16, 17, 31, 70};

TEST(Gemm, MatchesThePlainSumForEveryLayout) {
  for (const bool a_by_rows : {true, false}) {
    for (const bool b_by_rows : {true, false}) {
      for (const int64_t m : kSizes) {
        for (const int64_t n : kSizes) {
          for (const int64_t k : {1, 3, 8, 257, 600}) {
            const Product product({m, n, k}, a_by_rows, b_by_rows);
            for (const bool accumulate : {false, true}) {
              const std::vector<float> c = run(product, accumulate);
              for (const auto& [i, j] : {std::pair<int64_t, int64_t>{0, 0},
                                         {m - 1, n - 1},
                                         {m / 2, n / 3},
                                         {0, n - 1}}) {
                ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], expected(product, i, j, accumulate),
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
    const std::vector<float> c = run(product, true);
    for (int64_t i = 0; i < 29; ++i) {
      for (int64_t j = 0; j < 1100; ++j)
        ASSERT_NEAR(c[static_cast<size_t>(i * 1100 + j)], expected(product, i, j, true), 1e-4);
    }
  }
}

// More rows than are packed at once, whole and in shards along k; the last band is shorter.
TEST(Gemm, TallProductsAreRightEverywhere) {
  for (const int64_t shards : {1, 2}) {
    for (const int64_t k : {70, 310}) {
      const Product product({.m = 1301, .n = 37, .k = shards * k, .depth_shards = shards}, false,
                            true);
      const std::vector<float> c = run(product, true);
      for (int64_t i = 0; i < 1301; ++i) {
        for (int64_t j = 0; j < 37; ++j)
          ASSERT_NEAR(c[static_cast<size_t>(i * 37 + j)], expected(product, i, j, true), 1e-4);
      }
    }
  }
}

TEST(Gemm, StackedRowsHaveTheBitsOfEachShardAlone) {
  for (const bool b_by_rows : {true, false}) {
    for (const int64_t rows : {1, 8, 20, 40, 110}) {
      for (const int64_t n : {10, 70}) {
        const Product all({.m = 4 * rows, .n = n, .k = 500, .row_shards = 4}, true, b_by_rows);
        const std::vector<float> together = run(all, false);
        for (int64_t shard = 0; shard < 4; ++shard) {
          const auto begin = together.begin() + shard * rows * n;
          EXPECT_EQ(run(all.row_shard(shard), false), std::vector<float>(begin, begin + rows * n));
        }
      }
    }
  }
}

void expect_joined_by_the_tree(int64_t m, int64_t n, int64_t shards, int64_t rows) {
  const Product all({.m = m, .n = n, .k = shards * rows, .depth_shards = shards}, false, true);
  std::vector<std::vector<float>> parts;
  std::vector<const float*> at;
  for (int64_t shard = 0; shard < shards; ++shard) {
    parts.push_back(run(all.depth_shard(shard), false));
    at.push_back(parts.back().data());
  }
  std::vector<float> expected(static_cast<size_t>(m * n));
  tree_sum(at, expected.size(), expected.data());
  EXPECT_EQ(run(all, false), expected) << m << "×" << n << ", " << shards << " shards of " << rows;
}

TEST(Gemm, ShardsAlongKAreJoinedByTheTree) {
  for (const int64_t shards : {2, 4, 8, 32}) {
    for (const int64_t rows : {1, 7, 32}) {
      for (const int64_t m : {1, 2, 17}) {
        for (const int64_t n : {1, 2, 40}) expect_joined_by_the_tree(m, n, shards, rows);
      }
    }
  }
}

// Who makes room for many rows may multiply fewer of them.
TEST(Gemm, MoreRowsNeverNeedLessScratch) {
  for (const GemmWay* const way : {&kGemm, &kGemmBf16Pairs, &kGemmBf16Tiles}) {
    for (const int64_t n : {40, 784}) {
      for (const auto& [k, shards] :
           {std::pair<int64_t, int64_t>{64, 1}, {64, 8}, {256, 8}, {3000, 1}, {4096, 32}}) {
        size_t before = 0;
        for (int64_t m = 1; m < 1100; ++m) {
          const size_t floats =
              way->scratch_floats({.m = m, .n = n, .k = k, .depth_shards = shards});
          ASSERT_GE(floats, before) << m << "×" << n << "×" << k << ", " << shards << " shards";
          before = floats;
        }
      }
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
        results.push_back(run(product, false));
      }
      hwy::SetSupportedTargetsForTest(0);
      for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
    }
  }
}

}  // namespace
}  // namespace starling
