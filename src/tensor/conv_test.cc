// Winograd's convolution and the one by patches against plain sums, with every target of Highway.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "tensor/conv_patches.h"
#include "tensor/conv_winograd.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;
using Values = std::vector<float>;

struct ConvCase {
  int64_t rows, in_h, in_w, channels, filters, kernel, stride, padding;
  int64_t out_h() const { return (in_h + 2 * padding - kernel) / stride + 1; }
  int64_t out_w() const { return (in_w + 2 * padding - kernel) / stride + 1; }
  int64_t taps() const { return kernel * kernel; }
};

struct Results {
  Values y, dx, dw;
  Results(const ConvCase& c, float start_of_dw)
      : y(static_cast<size_t>(c.rows * c.out_h() * c.out_w() * c.filters)),
        dx(static_cast<size_t>(c.rows * c.in_h * c.in_w * c.channels)),
        dw(static_cast<size_t>(c.filters * c.channels * c.taps()), start_of_dw) {}
};

struct Operands {
  Values x, weights, dy;
  explicit Operands(const ConvCase& c)
      : x(random_floats(c.rows * c.in_h * c.in_w * c.channels, 1)),
        weights(random_floats(c.filters * c.channels * c.taps(), 2)),
        dy(random_floats(c.rows * c.out_h() * c.out_w() * c.filters, 3)) {}
};

Results plain(const ConvCase& c, const Operands& in, float start) {
  Results out(c, start);
  std::vector<double> y(out.y.size()), dx(out.dx.size()), dw(out.dw.size(), start);
  for (int64_t n = 0; n < c.rows; ++n)
    for (int64_t oy = 0; oy < c.out_h(); ++oy)
      for (int64_t ox = 0; ox < c.out_w(); ++ox)
        for (int64_t t = 0; t < c.taps(); ++t) {
          const int64_t iy = oy * c.stride + t / c.kernel - c.padding,
                        ix = ox * c.stride + t % c.kernel - c.padding;
          if (iy < 0 || iy >= c.in_h || ix < 0 || ix >= c.in_w) continue;
          for (int64_t k = 0; k < c.filters; ++k)
            for (int64_t i = 0; i < c.channels; ++i) {
              const auto at_x =
                  static_cast<size_t>(((n * c.in_h + iy) * c.in_w + ix) * c.channels + i);
              const auto at_y =
                  static_cast<size_t>(((n * c.out_h() + oy) * c.out_w() + ox) * c.filters + k);
              const auto at_w = static_cast<size_t>((k * c.channels + i) * c.taps() + t);
              y[at_y] += double{in.x[at_x]} * in.weights[at_w];
              dx[at_x] += double{in.dy[at_y]} * in.weights[at_w];
              dw[at_w] += double{in.dy[at_y]} * in.x[at_x];
            }
        }
  std::copy(y.begin(), y.end(), out.y.begin());
  std::copy(dx.begin(), dx.end(), out.dx.begin());
  std::copy(dw.begin(), dw.end(), out.dw.begin());
  return out;
}

// Scratch is full of NaN: whatever is read before it is written shows.
Values scratch_of(size_t floats) { return Values(floats, std::numeric_limits<float>::quiet_NaN()); }

Results by_winograd(const ConvCase& c, const Operands& in, bool accumulate, float start) {
  Results out(c, start);
  const WinogradShape shape{.rows = c.rows,
                            .in_h = c.in_h,
                            .in_w = c.in_w,
                            .channels = c.channels,
                            .out_h = c.out_h(),
                            .out_w = c.out_w(),
                            .filters = c.filters,
                            .pad_top = c.padding,
                            .pad_left = c.padding};
  const WinogradShape back{.rows = c.rows,
                           .in_h = c.out_h(),
                           .in_w = c.out_w(),
                           .channels = c.filters,
                           .out_h = c.in_h,
                           .out_w = c.in_w,
                           .filters = c.channels,
                           .pad_top = 2 - c.padding,
                           .pad_left = 2 - c.padding};
  Values weights = scratch_of(winograd_weight_floats(c.channels, c.filters));
  winograd_weights(c.channels, c.filters, in.weights.data(), weights.data());
  Values scratch = scratch_of(winograd_scratch_floats(shape));
  winograd_convolution(shape, in.x.data(), weights.data(), {}, out.y.data(), scratch.data());
  weights = scratch_of(winograd_weight_floats(c.filters, c.channels));
  winograd_weights_of_gradient(c.channels, c.filters, in.weights.data(), weights.data());
  scratch = scratch_of(winograd_scratch_floats(back));
  winograd_convolution(back, in.dy.data(), weights.data(), {}, out.dx.data(), scratch.data());
  scratch = scratch_of(winograd_gradient_scratch_floats(shape));
  winograd_weight_gradient(shape, in.x.data(), in.dy.data(), accumulate, out.dw.data(),
                           scratch.data());
  return out;
}

// The gradient of the input by patches is tested through the engine, which knows the phases.
Results by_patches(const ConvCase& c, const Operands& in, bool accumulate, float start) {
  Results out(c, start);
  Patches patches{c.rows, c.in_h, c.in_w, c.channels, c.out_h(), c.out_w(), c.stride, {}};
  for (int64_t t = 0; t < c.taps(); ++t)
    patches.taps.push_back({t / c.kernel - c.padding, t % c.kernel - c.padding, t});
  const PatchWeights layout{c.filters, c.channels * c.taps(), c.taps()};
  Values weights = scratch_of(patch_weight_floats(patches, c.filters));
  pack_patch_weights(patches, layout, in.weights.data(), weights.data());
  Values scratch = scratch_of(patch_scratch_floats(patches));
  patch_convolution(patches, {c.out_h(), c.out_w(), 1, 0, 0}, c.filters, in.x.data(),
                    weights.data(), nullptr, out.y.data(), scratch.data());
  scratch = scratch_of(patch_gradient_scratch_floats(patches, c.filters));
  patch_weight_gradient(patches, layout, in.x.data(), in.dy.data(), accumulate, out.dw.data(),
                        scratch.data());
  return out;
}

void expect_close(const Values& actual, const Values& expected, const char* what) {
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 3e-6f * largest) << what << " element " << i;
}

const std::vector<ConvCase> kWinogradCases = {
    {1, 4, 4, 8, 8, 3, 1, 1},   {2, 7, 9, 8, 24, 3, 1, 1},   {3, 5, 6, 16, 16, 3, 1, 0},
    {1, 6, 13, 24, 8, 3, 1, 2}, {5, 28, 9, 16, 32, 3, 1, 1}, {2, 3, 3, 40, 48, 3, 1, 1}};
const std::vector<ConvCase> kPatchCases = {
    {1, 4, 4, 1, 8, 3, 1, 1},  {3, 9, 7, 3, 24, 3, 2, 1},  {2, 11, 8, 16, 16, 3, 2, 0},
    {4, 6, 5, 17, 8, 1, 1, 0}, {2, 9, 9, 40, 32, 1, 2, 0}, {2, 13, 12, 48, 16, 5, 3, 2}};

TEST(Conv, WinogradMatchesThePlainSum) {
  for (const ConvCase& c : kWinogradCases) {
    const Operands in(c);
    for (const bool accumulate : {false, true}) {
      const Results expected = plain(c, in, accumulate ? 0.5f : 0.0f);
      for_each_target([&] {
        const Results actual = by_winograd(c, in, accumulate, 0.5f);
        expect_close(actual.y, expected.y, "output");
        expect_close(actual.dx, expected.dx, "input gradient");
        expect_close(actual.dw, expected.dw, "weight gradient");
      });
    }
  }
}

TEST(Conv, PatchesMatchThePlainSum) {
  for (const ConvCase& c : kPatchCases) {
    const Operands in(c);
    for (const bool accumulate : {false, true}) {
      const Results expected = plain(c, in, accumulate ? 0.5f : 0.0f);
      for_each_target([&] {
        const Results actual = by_patches(c, in, accumulate, 0.5f);
        expect_close(actual.y, expected.y, "output");
        expect_close(actual.dw, expected.dw, "weight gradient");
      });
    }
  }
}

TEST(Conv, BitsDoNotDependOnTheVectorWidth) {
  // Only targets with a fused multiply-add can agree.
  const int64_t fused = hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3);
  const ConvCase c = kWinogradCases[4];
  const Operands in(c);
  std::vector<Results> results;
  for (int64_t targets = fused; targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    results.push_back(by_winograd(c, in, false, 0));
    results.push_back(by_patches(c, in, false, 0));
  }
  hwy::SetSupportedTargetsForTest(0);
  for (size_t i = 2; i < results.size(); ++i) {
    EXPECT_EQ(results[i].y, results[i % 2].y);
    EXPECT_EQ(results[i].dx, results[i % 2].dx);
    EXPECT_EQ(results[i].dw, results[i % 2].dw);
  }
}

TEST(Conv, WinogradAppliesBiasResidualAndRelu) {
  const ConvCase c = kWinogradCases[1];
  const Operands in(c);
  const Values bias = random_floats(c.filters, 4);
  const Results expected = plain(c, in, 0);
  const Values residual = random_floats(static_cast<int64_t>(expected.y.size()), 5);
  const WinogradShape shape{c.rows,    c.in_h,    c.in_w,    c.channels, c.out_h(),
                            c.out_w(), c.filters, c.padding, c.padding};
  Values weights = scratch_of(winograd_weight_floats(c.channels, c.filters));
  winograd_weights(c.channels, c.filters, in.weights.data(), weights.data());
  for (int parts = 0; parts < 8; ++parts) {
    const bool with_bias = parts & 1, with_residual = parts & 2, relu = parts & 4;
    Values want = expected.y;
    for (size_t i = 0; i < want.size(); ++i) {
      if (with_bias) want[i] += bias[i % bias.size()];
      if (with_residual) want[i] += residual[i];
      if (relu) want[i] = std::max(want[i], 0.0f);
    }
    for_each_target([&] {
      Values y(want.size()), scratch = scratch_of(winograd_scratch_floats(shape));
      winograd_convolution(shape, in.x.data(), weights.data(),
                           {.bias = with_bias ? bias.data() : nullptr,
                            .residual = with_residual ? residual.data() : nullptr,
                            .relu = relu},
                           y.data(), scratch.data());
      expect_close(y, want, "output");
    });
  }
}

}  // namespace
}  // namespace starling
