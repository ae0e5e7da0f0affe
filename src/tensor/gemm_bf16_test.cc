#include "tensor/gemm_bf16.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/isa.h"
#include "tensor/gemm_testing.h"
#include "tensor/kernels.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

struct Kernel {
  const char* name;
  Bf16Products needs;
  const GemmWay& gemm;
};
void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }

class GemmBf16Test : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    if (bf16_products() < GetParam().needs) {
      GTEST_SKIP() << "this processor multiplies bf16 as " << bf16_products_name(bf16_products())
                   << ", not as " << bf16_products_name(GetParam().needs);
    }
  }

  std::vector<float> run(const Product& product, bool accumulate = false) const {
    const GemmWay& gemm = GetParam().gemm;
    return product.run(accumulate, gemm.scratch_floats(product.shape), gemm.multiply);
  }

  void expect_product(const Product& product, bool accumulate) const;
};

double expected_bf16(const Product& product, int64_t i, int64_t j, bool accumulate) {
  return product.expected(i, j, accumulate, [](float value) {
    round_bf16(1, &value, &value);
    return value;
  });
}

// Products of bf16 are exact in f32; what is lost is lost in the sums.
void GemmBf16Test::expect_product(const Product& product, bool accumulate) const {
  const std::vector<float> c = run(product, accumulate);
  for (int64_t i = 0; i < product.shape.m; ++i) {
    for (int64_t j = 0; j < product.shape.n; ++j) {
      ASSERT_NEAR(c[static_cast<size_t>(i * product.shape.n + j)],
                  expected_bf16(product, i, j, accumulate), 1e-4)
          << product.shape.m << "×" << product.shape.n << "×" << product.shape.k << " at " << i
          << ", " << j << (accumulate ? ", added" : "");
    }
  }
}

TEST_P(GemmBf16Test, MatchesThePlainSumOfRoundedOperandsForEveryLayout) {
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

TEST_P(GemmBf16Test, SeveralBlocksAreRightEverywhere) {
  for (const bool b_by_rows : {true, false}) {
    expect_product(Product({29, 600, 1100}, true, b_by_rows), true);
    expect_product(Product({530, 270, 70}, true, b_by_rows), false);
    expect_product(Product({530, 270, 70}, false, b_by_rows), false);
    expect_product(Product({260, 40, 600}, true, b_by_rows), false);
  }
}

TEST_P(GemmBf16Test, ColumnsHaveTheSameBitsAlone) {
  for (const bool b_by_rows : {true, false}) {
    constexpr int64_t kM = 20, kN = 300;
    const Product all({.m = kM, .n = kN, .k = 1500}, true, b_by_rows);
    const std::vector<float> together = run(all);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 16}, {5, 40}, {250, 50}}) {
      Product some({.m = kM, .n = count, .k = 1500}, true, b_by_rows);
      some.a = all.a;
      some.b = {all.b.data + first * all.b.column_stride, all.b.row_stride, all.b.column_stride};
      const std::vector<float> alone = run(some);
      for (int64_t i = 0; i < kM; ++i) {
        const auto begin = together.begin() + i * kN + first;
        const auto row = alone.begin() + i * count;
        EXPECT_EQ(std::vector<float>(row, row + count), std::vector<float>(begin, begin + count));
      }
    }
  }
}

TEST_P(GemmBf16Test, StackedRowsHaveTheBitsOfEachShardAlone) {
  for (const bool b_by_rows : {true, false}) {
    for (const int64_t rows : {1, 8, 20, 110}) {
      const int64_t n = 70;
      const Product all({.m = 4 * rows, .n = n, .k = 1500, .row_shards = 4}, true, b_by_rows);
      const std::vector<float> together = run(all);
      for (int64_t shard = 0; shard < 4; ++shard) {
        const auto begin = together.begin() + shard * rows * n;
        EXPECT_EQ(run(all.row_shard(shard)), std::vector<float>(begin, begin + rows * n));
      }
    }
  }
}

TEST_P(GemmBf16Test, ShardsAlongKAreJoinedByTheTree) {
  constexpr int64_t kM = 290, kN = 40;
  for (const int64_t shards : {2, 4, 8, 32}) {
    for (const int64_t rows : {1, 7, 32, 40}) {
      const Product all({.m = kM, .n = kN, .k = shards * rows, .depth_shards = shards}, false,
                        true);
      std::vector<std::vector<float>> parts;
      std::vector<const float*> at;
      for (int64_t shard = 0; shard < shards; ++shard) {
        parts.push_back(run(all.depth_shard(shard)));
        at.push_back(parts.back().data());
      }
      std::vector<float> sum(static_cast<size_t>(kM * kN));
      tree_sum(at, sum.size(), sum.data());
      EXPECT_EQ(run(all), sum) << shards << " shards of " << rows;
    }
  }
}

// The step relies on the flags to know whether its gradient is finite.
TEST_P(GemmBf16Test, WhatIsNotFiniteRaisesTheFlag) {
  constexpr unsigned kFlags = 0x003F, kOverflow = 0x0008;
  const auto raises = [&](float value, int64_t at) {
    Product product({40, 300, 50}, true, true);
    product.b_floats[static_cast<size_t>(at)] = value;
    _mm_setcsr(_mm_getcsr() & ~kFlags);
    run(product);
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

INSTANTIATE_TEST_SUITE_P(Kernels, GemmBf16Test,
                         testing::Values(Kernel{"Pairs", Bf16Products::kPairs, kGemmBf16Pairs},
                                         Kernel{"Tiles", Bf16Products::kTiles, kGemmBf16Tiles}),
                         [](const auto& test) { return test.param.name; });

// On every processor: workers whose numeric fingerprints say "pairs" are to have the same bits.
TEST(GemmBf16, PairsAddTheOddProductBeforeTheEvenOne) {
  if (bf16_products() < Bf16Products::kPairs) GTEST_SKIP() << "this processor has no pairs of bf16";
  const Product product({9, 20, 1076}, true, false);
  const int64_t m = product.shape.m, n = product.shape.n, k = product.shape.k;
  std::vector<float> a = product.a_floats, b = product.b_floats;
  round_bf16(m * k, a.data(), a.data());
  round_bf16(k * n, b.data(), b.data());
  std::vector<float> expected(static_cast<size_t>(m * n), 0.0f);
  for (int64_t i = 0; i < m * n; ++i) {
    const float *row = &a[static_cast<size_t>(i / n * k)],
                *column = &b[static_cast<size_t>(i % n * k)];
    float& sum = expected[static_cast<size_t>(i)];
    for (int64_t pair = 0; pair < k; pair += 2)
      sum = std::fma(row[pair], column[pair], std::fma(row[pair + 1], column[pair + 1], sum));
  }
  EXPECT_EQ(
      product.run(false, kGemmBf16Pairs.scratch_floats(product.shape), kGemmBf16Pairs.multiply),
      expected);
}

TEST(GemmBf16, IsTheOneThatTheMachineIsSaidToHave) {
  switch (bf16_products()) {
    case Bf16Products::kRounded:
      EXPECT_EQ(gemm_bf16(), nullptr);
      break;
    case Bf16Products::kPairs:
      EXPECT_EQ(gemm_bf16(), &kGemmBf16Pairs);
      break;
    case Bf16Products::kTiles:
      EXPECT_EQ(gemm_bf16(), &kGemmBf16Tiles);
      break;
  }
  if (isa_name() != "avx512") {
    EXPECT_EQ(bf16_products(), Bf16Products::kRounded);
  }
}

}  // namespace
}  // namespace starling
