// The pooled convolution against plain sums, with every target of Highway.
#include "tensor/conv_pool.h"

#include <gtest/gtest.h>

#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;
using Values = std::vector<float>;

struct PoolOperands {
  Values x, weights, bias, dy;
  explicit PoolOperands(const ConvPoolShape& s)
      : x(random_floats(s.rows * s.in_h * s.in_w * s.channels, 1)),
        weights(random_floats(s.filters * s.channels * 9, 2)),
        bias(random_floats(s.filters, 3)),
        dy(random_floats(s.rows * s.out_h * s.out_w * s.filters, 4)) {}
};

struct PoolResults {
  Values y, dw, db;
  std::vector<uint8_t> where;
  explicit PoolResults(const ConvPoolShape& s)
      : y(static_cast<size_t>(s.rows * s.out_h * s.out_w * s.filters)),
        dw(static_cast<size_t>(s.filters * s.channels * 9)),
        db(static_cast<size_t>(s.filters)),
        where(y.size()) {}
};

// The input that element `tap` of the window at place q of pooled pixel (py, px) sees.
double input(const ConvPoolShape& s, const PoolOperands& in, int64_t row, int64_t py, int64_t px,
             int64_t q, int64_t channel, int64_t tap) {
  const int64_t y = 2 * py + q / 2 + tap / 3 - s.pad_top, x = 2 * px + q % 2 + tap % 3 - s.pad_left;
  if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w) return 0;
  return in.x[static_cast<size_t>(((row * s.in_h + y) * s.in_w + x) * s.channels + channel)];
}

PoolResults plain_pooled(const ConvPoolShape& s, const PoolOperands& in, bool relu) {
  PoolResults out(s);
  std::vector<double> dw(out.dw.size()), db(out.db.size());
  size_t at = 0;
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t py = 0; py < s.out_h; ++py)
      for (int64_t px = 0; px < s.out_w; ++px)
        for (int64_t k = 0; k < s.filters; ++k, ++at) {
          double best = 0;
          for (int64_t q = 0; q < 4; ++q) {
            double sum = in.bias[static_cast<size_t>(k)];
            for (int64_t i = 0; i < s.channels * 9; ++i)
              sum += input(s, in, row, py, px, q, i / 9, i % 9) *
                     in.weights[static_cast<size_t>(k * s.channels * 9 + i)];
            if (q > 0 && sum <= best) continue;
            best = sum;
            out.where[at] = static_cast<uint8_t>(q);
          }
          out.y[at] = static_cast<float>(relu ? std::max(best, 0.0) : best);
          if (relu && best <= 0) continue;
          db[static_cast<size_t>(k)] += in.dy[at];
          for (int64_t i = 0; i < s.channels * 9; ++i)
            dw[static_cast<size_t>(k * s.channels * 9 + i)] +=
                in.dy[at] * input(s, in, row, py, px, out.where[at], i / 9, i % 9);
        }
  std::copy(dw.begin(), dw.end(), out.dw.begin());
  std::copy(db.begin(), db.end(), out.db.begin());
  return out;
}

PoolResults our_pooled(const ConvPoolShape& s, const PoolOperands& in, bool relu) {
  PoolResults out(s);
  Values scratch(conv_pool_scratch_floats(s), std::numeric_limits<float>::quiet_NaN());
  conv_pool_forward(s, relu, in.x.data(), in.weights.data(), in.bias.data(), out.y.data(),
                    out.where.data(), scratch.data());
  std::fill(scratch.begin(), scratch.end(), std::numeric_limits<float>::quiet_NaN());
  conv_pool_backward(s, relu, in.x.data(), out.y.data(), out.where.data(), in.dy.data(), false,
                     out.dw.data(), out.db.data(), scratch.data());
  return out;
}

void expect_pooled_close(const Values& actual, const Values& expected, const char* what) {
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-5f * (1 + std::abs(expected[i])))
        << what << " element " << i;
}

TEST(ConvPool, MatchesThePlainSumWithEveryTarget) {
  for (const ConvPoolShape& s :
       {ConvPoolShape{2, 8, 9, 1, 32, 3, 3, 0, 0}, ConvPoolShape{1, 5, 7, 3, 24, 2, 3, 1, 1},
        ConvPoolShape{3, 4, 4, 4, 8, 3, 3, 2, 2}, ConvPoolShape{1, 2, 2, 1, 8, 1, 1, 1, 1},
        ConvPoolShape{2, 5, 13, 2, 56, 2, 6, 1, 1}}) {
    const PoolOperands in(s);
    for (const bool relu : {false, true}) {
      const PoolResults expected = plain_pooled(s, in, relu);
      for_each_target([&] {
        const PoolResults actual = our_pooled(s, in, relu);
        expect_pooled_close(actual.y, expected.y, "output");
        EXPECT_EQ(actual.where, expected.where);
        expect_pooled_close(actual.dw, expected.dw, "weight gradient");
        expect_pooled_close(actual.db, expected.db, "bias gradient");
      });
    }
  }
}

TEST(ConvPool, TheFirstOfEqualsWins) {
  const ConvPoolShape s{1, 6, 6, 1, 8, 2, 2, 0, 0};
  PoolOperands in(s);
  std::fill(in.x.begin(), in.x.end(), 1.0f);
  for_each_target([&] {
    const PoolResults actual = our_pooled(s, in, false);
    EXPECT_EQ(actual.where, std::vector<uint8_t>(actual.where.size(), 0));
  });
}

}  // namespace
}  // namespace starling
