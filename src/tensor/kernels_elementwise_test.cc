#include <limits>

#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

constexpr Elementwise kKinds[] = {Elementwise::kRelu, Elementwise::kLeakyRelu, Elementwise::kGelu,
                                  Elementwise::kSigmoid, Elementwise::kTanh};
constexpr float kSlope = 0.1f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double value(Elementwise kind, double x) {
  switch (kind) {
    case Elementwise::kRelu:
      return std::max(0.0, x);
    case Elementwise::kLeakyRelu:
      return x < 0 ? double{kSlope} * x : x;
    case Elementwise::kGelu:
      return x * phi(x);
    case Elementwise::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Elementwise::kTanh:
      return std::tanh(x);
  }
  return 0;
}

// f′ from x for gelu, from y for the others.
double slope(Elementwise kind, double known) {
  switch (kind) {
    case Elementwise::kRelu:
      return known > 0;
    case Elementwise::kLeakyRelu:
      return known > 0 ? 1 : double{kSlope};
    case Elementwise::kGelu:
      return phi(known) + known * std::exp(-known * known / 2) / std::sqrt(2 * M_PI);
    case Elementwise::kSigmoid:
      return known * (1 - known);
    case Elementwise::kTanh:
      return 1 - known * known;
  }
  return 0;
}

std::vector<float> forward(Elementwise kind, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  elementwise_forward(kind, kSlope, static_cast<int64_t>(x.size()), x.data(), y.data());
  return y;
}

TEST(KernelsElementwise, ForwardMatchesDoubleAtEverySize) {
  for_each_target([] {
    for (const Elementwise kind : kKinds) {
      for (const int64_t n : kSizes) {
        const std::vector<float> x = random_floats(n, 1, -6, 6);
        const std::vector<float> y = forward(kind, x);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_TRUE(near(y[i], value(kind, x[i]), 1e-7, 4e-7)) << "x = " << x[i];
        }
      }
    }
  });
}

TEST(KernelsElementwise, TranscendentalsAreRelativelyAccurateOverTheirRange) {
  std::vector<float> x;
  for (float magnitude = 1e-30f; magnitude < 1; magnitude *= 1.37f) {
    x.push_back(magnitude);
    x.push_back(-magnitude);
  }
  for (float v = -104; v < 104; v += 0.0137f) x.push_back(v);
  for_each_target([&] {
    const auto sigmoids = forward(Elementwise::kSigmoid, x);
    const auto tanhs = forward(Elementwise::kTanh, x);
    const auto gelus = forward(Elementwise::kGelu, x);
    for (size_t i = 0; i < x.size(); ++i) {
      // Below 1e-37 a float has few digits or none.
      ASSERT_TRUE(near(sigmoids[i], value(Elementwise::kSigmoid, x[i]), 1e-43, 4e-7)) << x[i];
      ASSERT_TRUE(near(tanhs[i], value(Elementwise::kTanh, x[i]), 0, 4e-7)) << x[i];
      // The rounding of x²/2 in the exponent costs digits in the far tail of gelu.
      const double tail = x[i] < -3 ? 1e-7 * x[i] * x[i] : 0;
      ASSERT_TRUE(near(gelus[i], value(Elementwise::kGelu, x[i]), 1e-36, 1e-6 + tail)) << x[i];
    }
  });
}

TEST(KernelsElementwise, ExtremesNeitherOverflowNorLoseNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> x = {-kInfinity, -largest, -1e30f, 0.0f, 1e30f, largest, kInfinity, nan};
  for_each_target([&] {
    const std::vector<float> ones(x.size(), 1.0f);
    std::vector<float> slopes(x.size());
    elementwise_backward(Elementwise::kGelu, 0, 8, x.data(), ones.data(), slopes.data());
    EXPECT_EQ(forward(Elementwise::kSigmoid, x)[0], 0.0f);
    EXPECT_EQ(forward(Elementwise::kSigmoid, x)[6], 1.0f);
    EXPECT_EQ(forward(Elementwise::kTanh, x)[0], -1.0f);
    EXPECT_EQ(forward(Elementwise::kTanh, x)[5], 1.0f);
    EXPECT_EQ(forward(Elementwise::kGelu, x)[0], 0.0f);
    EXPECT_EQ(forward(Elementwise::kGelu, x)[1], 0.0f);
    EXPECT_EQ(forward(Elementwise::kGelu, x)[5], largest);
    EXPECT_EQ(forward(Elementwise::kGelu, x)[6], kInfinity);
    EXPECT_EQ(slopes[0], 0.0f);
    EXPECT_EQ(slopes[6], 1.0f);
    for (const Elementwise kind : kKinds) EXPECT_TRUE(std::isnan(forward(kind, x)[7]));
    EXPECT_TRUE(std::isnan(slopes[7]));
  });
}

TEST(KernelsElementwise, BackwardMatchesDoubleAlsoInPlace) {
  for_each_target([] {
    for (const Elementwise kind : kKinds) {
      for (const int64_t n : kSizes) {
        const std::vector<float> x = random_floats(n, 2, -6, 6), dy = random_floats(n, 3);
        const std::vector<float> known = kind == Elementwise::kGelu ? x : forward(kind, x);
        std::vector<float> dx(x.size()), in_place = dy;
        elementwise_backward(kind, kSlope, n, known.data(), dy.data(), dx.data());
        elementwise_backward(kind, kSlope, n, known.data(), in_place.data(), in_place.data());
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_TRUE(near(dx[i], dy[i] * slope(kind, known[i]), 1e-6, 1e-6)) << "x = " << x[i];
        }
        ASSERT_EQ(dx, in_place);
      }
    }
  });
}

TEST(KernelsElementwise, ForwardWorksInPlace) {
  for (const Elementwise kind : kKinds) {
    std::vector<float> x = random_floats(1009, 4);
    const std::vector<float> y = forward(kind, x);
    elementwise_forward(kind, kSlope, 1009, x.data(), x.data());
    EXPECT_EQ(x, y);
  }
}

TEST(KernelsElementwise, EveryTargetGivesTheSameBits) {
  const std::vector<float> x = random_floats(4099, 5, -20, 20), dy = random_floats(4099, 6);
  for (const Elementwise kind : kKinds) {
    expect_same_bits([&] { return forward(kind, x); });
    expect_same_bits([&] {
      std::vector<float> dx(x.size());
      elementwise_backward(kind, kSlope, 4099, x.data(), dy.data(), dx.data());
      return dx;
    });
  }
}

TEST(KernelsElementwise, AddsAndScales) {
  for_each_target([] {
    for (const int64_t n : kSizes) {
      const std::vector<float> a = random_floats(n, 7), b = random_floats(n, 8);
      std::vector<float> c(a.size()), scaled(a.size()), in_place = a;
      add(n, a.data(), b.data(), c.data());
      add(n, in_place.data(), b.data(), in_place.data());
      scale(n, 0.3f, a.data(), scaled.data());
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(c[i], a[i] + b[i]);
        ASSERT_EQ(scaled[i], 0.3f * a[i]);
      }
      ASSERT_EQ(c, in_place);
    }
  });
}

TEST(KernelsElementwise, CopiesAndFindsTheGreatestMagnitude) {
  for_each_target([&] {
    for (const int64_t n : kSizes) {
      std::vector<float> from = random_floats(n, 9), to(from.size());
      float most = 0;
      for (const float value : from) most = std::max(most, std::abs(value));
      ASSERT_EQ(copy_and_most(n, from.data(), to.data()), most);
      ASSERT_EQ(to, from);
      if (n == 0) continue;
      from.back() = -kInfinity;
      ASSERT_EQ(copy_and_most(n, from.data(), to.data()), kInfinity);
      from.front() = std::numeric_limits<float>::quiet_NaN();
      ASSERT_TRUE(std::isnan(copy_and_most(n, from.data(), to.data())));
    }
  });
}

}  // namespace
}  // namespace starling
