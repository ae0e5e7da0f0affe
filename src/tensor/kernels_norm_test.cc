#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

constexpr int64_t kCounts[] = {1, 2, 3, 17, 127, 128, 129, 256, 1000};
constexpr int64_t kChannels[] = {1, 3, 7, 8, 16, 17, 32, 45, 64, 67};

struct Moments {
  std::vector<double> mean, m2;
};

Moments naive_moments(int64_t n, int64_t channels, const std::vector<float>& x) {
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  for (int64_t i = 0; i < n * channels; ++i) m.mean[i % channels] += x[i];
  for (double& v : m.mean) v /= static_cast<double>(n);
  for (int64_t i = 0; i < n * channels; ++i) {
    const double d = x[i] - m.mean[i % channels];
    m.m2[i % channels] += d * d;
  }
  return m;
}

Moments kernel_moments(int64_t n, int64_t channels, const std::vector<float>& x) {
  Moments m{std::vector<double>(channels, 99.0), std::vector<double>(channels, 99.0)};
  batch_moments(n, channels, x.data(), m.mean.data(), m.m2.data());
  return m;
}

void expect_moments(int64_t n, int64_t channels, const std::vector<float>& x, double spread) {
  const Moments expected = naive_moments(n, channels, x), actual = kernel_moments(n, channels, x);
  for (int64_t c = 0; c < channels; ++c) {
    ASSERT_TRUE(near(actual.mean[c], expected.mean[c], 2e-7 * spread)) << n << " × " << channels;
    ASSERT_TRUE(near(actual.m2[c], expected.m2[c], 1e-12, 2e-6)) << n << " × " << channels;
  }
}

TEST(KernelsNorm, MomentsMatchDouble) {
  for_each_target([] {
    for (const int64_t n : kCounts) {
      for (const int64_t channels : kChannels) {
        expect_moments(n, channels, random_floats(n * channels, 1), 4);
      }
    }
  });
}

TEST(KernelsNorm, MomentsSurviveALargeMean) {
  for_each_target([] {
    for (const float mean : {1000.0f, -30000.0f}) {
      for (const int64_t n : kCounts) {
        expect_moments(n, 33, random_floats(n * 33, 2, mean - 1.7f, mean + 1.7f), 3.4);
      }
    }
  });
}

TEST(KernelsNorm, MomentsSurviveAMeanThatMoves) {
  // The second half lies far from the first; then a single outlier comes first.
  std::vector<float> x = random_floats(1000, 3, 999, 1001);
  for (size_t i = 500; i < x.size(); ++i) x[i] -= 5000;
  expect_moments(1000, 1, x, 5000);
  std::vector<float> y = random_floats(1000, 4);
  y[0] = 1e6f;
  expect_moments(1000, 1, y, 1000);
  expect_moments(1000, 1, std::vector<float>(1000, 0.1f), 0.1);
}

TEST(KernelsNorm, MomentsOfNothingAreZeroAndNanIsSeen) {
  const Moments none = kernel_moments(0, 3, {});
  EXPECT_EQ(none.mean, std::vector<double>(3));
  EXPECT_EQ(none.m2, std::vector<double>(3));
  std::vector<float> x = random_floats(600, 5);
  x[300] = std::nanf("");
  const Moments bad = kernel_moments(200, 3, x);
  EXPECT_TRUE(std::isnan(bad.mean[0]) && std::isnan(bad.m2[0]));
  EXPECT_TRUE(std::isfinite(bad.m2[1]));
}

TEST(KernelsNorm, AffineMatchesPlainLoopsAlsoInPlace) {
  for_each_target([] {
    for (const int64_t channels : kChannels) {
      for (const bool relu : {false, true}) {
        const int64_t n = 5;
        const std::vector<float> x = random_floats(n * channels, 6);
        const std::vector<float> a = random_floats(channels, 7), b = random_floats(channels, 8);
        std::vector<float> y(x.size()), in_place = x;
        channel_affine(n, channels, a.data(), b.data(), relu, x.data(), y.data());
        channel_affine(n, channels, a.data(), b.data(), relu, in_place.data(), in_place.data());
        for (int64_t i = 0; i < n * channels; ++i) {
          const float v = x[i] * a[i % channels] + b[i % channels];
          ASSERT_EQ(y[i], relu ? std::max(0.0f, v) : v);
        }
        ASSERT_EQ(in_place, y);
      }
    }
  });
}

// A batch, its statistics in f32, and the output of the forward pass.
struct Batch {
  Batch(int64_t n, int64_t c, bool relu)
      : x(random_floats(n * c, 9, 1, 5)),
        dy(random_floats(n * c, 10)),
        scale(random_floats(c, 11)) {
    const std::vector<float> shift = random_floats(c, 12);
    const Moments m = naive_moments(n, c, x);
    std::vector<float> a(c), b(c);
    for (int64_t i = 0; i < c; ++i) {
      mean.push_back(static_cast<float>(m.mean[i]));
      inverse.push_back(static_cast<float>(1 / std::sqrt(m.m2[i] / static_cast<double>(n) + 1e-5)));
      a[i] = scale[i] * inverse[i];
      b[i] = shift[i] - mean[i] * a[i];
    }
    y.resize(x.size());
    channel_affine(n, c, a.data(), b.data(), relu, x.data(), y.data());
  }
  std::vector<float> x, dy, scale, mean, inverse, y;
};

TEST(KernelsNorm, BackwardMatchesDouble) {
  for_each_target([] {
    for (const int64_t n : {2, 17, 129, 1000}) {
      for (const int64_t c : kChannels) {
        for (const bool relu : {false, true}) {
          const Batch batch(n, c, relu);
          std::vector<float> dx = batch.dy, dscale(c, 1.0f), dshift(c, 2.0f), scratch(2 * c);
          batch_norm_backward(n, c, batch.x.data(), relu ? batch.y.data() : nullptr, relu,
                              batch.mean.data(), batch.inverse.data(), batch.scale.data(),
                              dx.data(), dx.data(), true, dscale.data(), dshift.data(),
                              scratch.data());
          for (int64_t k = 0; k < c; ++k) {
            const auto g = [&](int64_t r) {
              return relu && !(batch.y[r * c + k] > 0) ? 0.0 : double{batch.dy[r * c + k]};
            };
            const auto hat = [&](int64_t r) {
              return (double{batch.x[r * c + k]} - batch.mean[k]) * batch.inverse[k];
            };
            double sum = 0, sum_hat = 0;
            for (int64_t r = 0; r < n; ++r) {
              sum += g(r);
              sum_hat += g(r) * hat(r);
            }
            const auto count = static_cast<double>(n);
            ASSERT_TRUE(near(dshift[k], 2 + sum, 2e-7 * (10 + count)));
            ASSERT_TRUE(near(dscale[k], 1 + sum_hat, 4e-7 * (10 + count)));
            for (int64_t r = 0; r < n; ++r) {
              const double expected = double{batch.scale[k]} * batch.inverse[k] *
                                      (g(r) - sum / count - hat(r) * sum_hat / count);
              const double size = 1 + std::abs(double{batch.scale[k]} * batch.inverse[k]);
              ASSERT_TRUE(near(dx[r * c + k], expected, 4e-6 * size));
            }
          }
        }
      }
    }
  });
}

TEST(KernelsNorm, BackwardOverwritesAndLeavesOutTheInputWhenTold) {
  const Batch batch(50, 5, false);
  std::vector<float> dx(250), dscale(5, 9.0f), dshift(5, 9.0f), dscale2(5), dshift2(5), scratch(10);
  batch_norm_backward(50, 5, batch.x.data(), nullptr, false, batch.mean.data(),
                      batch.inverse.data(), batch.scale.data(), batch.dy.data(), nullptr, false,
                      dscale.data(), dshift.data(), scratch.data());
  batch_norm_backward(50, 5, batch.x.data(), nullptr, false, batch.mean.data(),
                      batch.inverse.data(), batch.scale.data(), batch.dy.data(), dx.data(), true,
                      dscale2.data(), dshift2.data(), scratch.data());
  EXPECT_EQ(dscale, dscale2);
  EXPECT_EQ(dshift, dshift2);
}

TEST(KernelsNorm, EveryTargetGivesTheSameBits) {
  for (const int64_t c : kChannels) {
    const std::vector<float> x = random_floats(1000 * c, 13, 9, 11);
    expect_same_bits([&] {
      Moments m = kernel_moments(1000, c, x);
      m.mean.insert(m.mean.end(), m.m2.begin(), m.m2.end());
      return m.mean;
    });
    const Batch batch(1000, c, true);
    expect_same_bits([&] {
      std::vector<float> dx(batch.x.size()), dscale(c), dshift(c), scratch(2 * c);
      batch_norm_backward(1000, c, batch.x.data(), batch.y.data(), true, batch.mean.data(),
                          batch.inverse.data(), batch.scale.data(), batch.dy.data(), dx.data(),
                          false, dscale.data(), dshift.data(), scratch.data());
      dx.insert(dx.end(), dscale.begin(), dscale.end());
      dx.insert(dx.end(), dshift.begin(), dshift.end());
      return dx;
    });
  }
}

}  // namespace
}  // namespace starling
