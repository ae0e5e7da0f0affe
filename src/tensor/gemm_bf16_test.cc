#include "tensor/gemm_bf16.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <limits>

#include "base/isa.h"
#include "tensor/gemm_testing.h"
#include "tensor/kernels.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

class GemmBf16 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_tiles()) GTEST_SKIP() << "this processor has no tiles of bf16 (AMX)";
  }
};

std::vector<float> run_bf16(const Product& product, bool accumulate = false) {
  return product.run(accumulate, gemm_bf16_scratch_floats(product.shape), gemm_bf16);
}

double expected_bf16(const Product& product, int64_t i, int64_t j, bool accumulate) {
  return product.expected(i, j, accumulate, [](float value) {
    round_bf16(1, &value, &value);
    return value;
  });
}

// Products of bf16 are exact in f32; what is lost is lost in the sums.
void expect_product(const Product& product, bool accumulate) {
  const std::vector<float> c = run_bf16(product, accumulate);
  for (int64_t i = 0; i < product.shape.m; ++i) {
    for (int64_t j = 0; j < product.shape.n; ++j) {
      ASSERT_NEAR(c[static_cast<size_t>(i * product.shape.n + j)],
                  expected_bf16(product, i, j, accumulate), 1e-4)
          << product.shape.m << "×" << product.shape.n << "×" << product.shape.k << " at " << i
          << ", " << j << (accumulate ? ", added" : "");
    }
  }
}

TEST_F(GemmBf16, MatchesThePlainSumOfRoundedOperandsForEveryLayout) {
  for (const bool a_by_rows : {true, false}) {
    for (const bool b_by_rows : {true, false}) {
      for (const int64_t m : {1, 15, 16, 17, 40}) {
        for (const int64_t n : {1, 10, 16, 33, 70}) {
          for (const int64_t k : {1, 2, 31, 32, 33, 65}) {
            const Product product({m, n, k}, a_by_rows, b_by_rows);
            expect_product(product, false);
            expect_product(product, true);
          }
        }
      }
    }
  }
}

TEST_F(GemmBf16, SeveralBlocksAreRightEverywhere) {
  for (const bool b_by_rows : {true, false}) {
    expect_product(Product({29, 600, 1100}, true, b_by_rows), true);
    expect_product(Product({530, 270, 70}, true, b_by_rows), false);
    expect_product(Product({530, 270, 70}, false, b_by_rows), false);
  }
}

TEST_F(GemmBf16, StackedRowsHaveTheBitsOfEachShardAlone) {
  for (const bool b_by_rows : {true, false}) {
    for (const int64_t rows : {1, 8, 20, 110}) {
      const int64_t n = 70;
      const Product all({.m = 4 * rows, .n = n, .k = 1500, .row_shards = 4}, true, b_by_rows);
      const std::vector<float> together = run_bf16(all);
      for (int64_t shard = 0; shard < 4; ++shard) {
        const auto begin = together.begin() + shard * rows * n;
        EXPECT_EQ(run_bf16(all.row_shard(shard)), std::vector<float>(begin, begin + rows * n));
      }
    }
  }
}

TEST_F(GemmBf16, ShardsAlongKAreJoinedByTheTree) {
  constexpr int64_t kM = 290, kN = 40;
  for (const int64_t shards : {2, 4, 8, 32}) {
    for (const int64_t rows : {1, 7, 32, 40}) {
      const Product all({.m = kM, .n = kN, .k = shards * rows, .depth_shards = shards}, false,
                        true);
      std::vector<std::vector<float>> parts;
      std::vector<const float*> at;
      for (int64_t shard = 0; shard < shards; ++shard) {
        parts.push_back(run_bf16(all.depth_shard(shard)));
        at.push_back(parts.back().data());
      }
      std::vector<float> sum(static_cast<size_t>(kM * kN));
      tree_sum(at, sum.size(), sum.data());
      EXPECT_EQ(run_bf16(all), sum) << shards << " shards of " << rows;
    }
  }
}

// The step relies on the flags to know whether its gradient is finite.
TEST_F(GemmBf16, WhatIsNotFiniteRaisesTheFlag) {
  constexpr unsigned kFlags = 0x003F, kOverflow = 0x0008;
  const auto raises = [](float value, int64_t at) {
    Product product({40, 300, 50}, true, true);
    product.b_floats[static_cast<size_t>(at)] = value;
    _mm_setcsr(_mm_getcsr() & ~kFlags);
    run_bf16(product);
    return (_mm_getcsr() & kOverflow) != 0;
  };
  const int64_t last = 300 * 50 - 1;
  for (const int64_t at : {int64_t{0}, last}) {
    EXPECT_FALSE(raises(1, at));
    EXPECT_TRUE(raises(std::numeric_limits<float>::infinity(), at));
    EXPECT_TRUE(raises(std::numeric_limits<float>::quiet_NaN(), at));
    EXPECT_TRUE(raises(3.4e38f, at)) << "rounded up, it is infinite";
  }
}

}  // namespace
}  // namespace starling
