#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

constexpr int64_t kClasses[] = {1,  2,  3,  4,  5,  8,  9,   10,   12,
                                15, 16, 17, 31, 32, 33, 100, 1000, 1009};

std::vector<double> naive_softmax(int64_t columns, const float* x) {
  const double shift = *std::max_element(x, x + columns);
  std::vector<double> p(static_cast<size_t>(columns));
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += p[c] = std::exp(x[c] - shift);
  for (double& v : p) v /= sum;
  return p;
}

double naive_loss(int64_t columns, const float* x, int64_t label) {
  const double shift = *std::max_element(x, x + columns);
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += std::exp(x[c] - shift);
  return std::log(sum) + shift - x[label];
}

std::vector<float> labels_of(int64_t rows, int64_t columns) {
  std::vector<float> labels(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) labels[r] = static_cast<float>(r * 7 % columns);
  return labels;
}

TEST(KernelsSoftmax, ForwardAndBackwardMatchDouble) {
  for_each_target([] {
    for (const int64_t columns : kClasses) {
      const int64_t rows = 5, n = rows * columns;
      const std::vector<float> x = random_floats(n, 1, -8, 8), dy = random_floats(n, 2);
      std::vector<float> y(x.size()), dx(x.size()), in_place = dy;
      softmax_forward(rows, columns, x.data(), y.data());
      softmax_backward(rows, columns, y.data(), dy.data(), dx.data());
      softmax_backward(rows, columns, y.data(), in_place.data(), in_place.data());
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> p = naive_softmax(columns, &x[r * columns]);
        double dot = 0;
        for (int64_t c = 0; c < columns; ++c)
          dot += double{y[r * columns + c]} * dy[r * columns + c];
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t i = r * columns + c;
          ASSERT_TRUE(near(y[i], p[c], 1e-30, 2e-6)) << "columns " << columns;
          ASSERT_TRUE(near(dx[i], y[i] * (dy[i] - dot), 1e-6));
        }
      }
      ASSERT_EQ(in_place, dx);
    }
  });
}

TEST(KernelsSoftmax, CrossEntropyMatchesDouble) {
  for_each_target([] {
    for (const int64_t columns : kClasses) {
      const int64_t rows = 7, n = rows * columns;
      const std::vector<float> x = random_floats(n, 3, -8, 8), labels = labels_of(rows, columns);
      std::vector<float> losses(7), only_losses(7), dx(x.size());
      softmax_cross_entropy(rows, columns, x.data(), labels.data(), 0.25f, losses.data(),
                            dx.data());
      softmax_cross_entropy(rows, columns, x.data(), labels.data(), 0.25f, only_losses.data(),
                            nullptr);
      ASSERT_EQ(losses, only_losses);
      for (int64_t r = 0; r < rows; ++r) {
        const auto label = static_cast<int64_t>(labels[r]);
        const std::vector<double> p = naive_softmax(columns, &x[r * columns]);
        ASSERT_TRUE(near(losses[r], naive_loss(columns, &x[r * columns], label), 2e-6, 1e-6));
        for (int64_t c = 0; c < columns; ++c) {
          ASSERT_TRUE(near(dx[r * columns + c], 0.25 * (p[c] - (c == label)), 1e-7, 2e-6));
        }
      }
    }
  });
}

TEST(KernelsSoftmax, LargeInputsStayFinite) {
  for_each_target([] {
    const std::vector<float> x = {1e30f, -1e30f, 5000.0f, 5001.0f, 5002.0f, -1e30f};
    const std::vector<float> labels = {0, 2};
    std::vector<float> y(6), losses(2), dx(6);
    softmax_forward(2, 3, x.data(), y.data());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(near(y[3], 1 / (1 + std::exp(1.0)), 0, 1e-6));
    softmax_cross_entropy(2, 3, x.data(), labels.data(), 1, losses.data(), dx.data());
    EXPECT_EQ(losses[0], 0.0f);
    EXPECT_EQ(losses[1], 5002.0f + 1e30f);
    EXPECT_TRUE(all_finite(6, dx.data()));
  });
}

TEST(KernelsSoftmax, NanInARowSpoilsThatRowOnly) {
  for_each_target([] {
    for (const int64_t columns : {10, 40}) {
      std::vector<float> x = random_floats(2 * columns, 4);
      x[3] = std::nanf("");
      std::vector<float> losses(2), labels(2, 1.0f);
      softmax_cross_entropy(2, columns, x.data(), labels.data(), 1, losses.data(), nullptr);
      EXPECT_TRUE(std::isnan(losses[0]));
      EXPECT_TRUE(std::isfinite(losses[1]));
    }
  });
}

TEST(KernelsSoftmax, EveryTargetGivesTheSameBits) {
  for (const int64_t columns : kClasses) {
    const int64_t rows = 9, n = rows * columns;
    const std::vector<float> x = random_floats(n, 5, -8, 8), dy = random_floats(n, 6);
    const std::vector<float> labels = labels_of(rows, columns);
    expect_same_bits([&] {
      std::vector<float> y(x.size());
      softmax_forward(rows, columns, x.data(), y.data());
      return y;
    });
    expect_same_bits([&] {
      std::vector<float> dx(x.size());
      softmax_backward(rows, columns, x.data(), dy.data(), dx.data());
      return dx;
    });
    expect_same_bits([&] {
      std::vector<float> losses(9), dx(x.size());
      softmax_cross_entropy(rows, columns, x.data(), labels.data(), 1, losses.data(), dx.data());
      dx.insert(dx.end(), losses.begin(), losses.end());
      return dx;
    });
  }
}

}  // namespace
}  // namespace starling
