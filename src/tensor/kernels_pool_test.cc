#include <limits>
#include <utility>

#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

PoolShape pool(int64_t rows, int64_t h, int64_t w, int64_t channels, int64_t kernel, int64_t stride,
               int64_t pad = 0) {
  return {.rows = rows,
          .in_h = h,
          .in_w = w,
          .channels = channels,
          .out_h = (h + 2 * pad - kernel) / stride + 1,
          .out_w = (w + 2 * pad - kernel) / stride + 1,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad,
          .pad_left = pad};
}

// Two by two in every phase of odd and even, then overlaps, gaps, padding and uneven windows.
std::vector<PoolShape> shapes() {
  std::vector<PoolShape> all;
  for (const int64_t channels : {1, 3, 7, 8, 10, 16, 32, 33, 45, 64, 100}) {
    for (const auto& [h, w] : {std::pair{2, 2}, {3, 2}, {2, 3}, {5, 5}, {6, 8}, {7, 4}}) {
      all.push_back(pool(2, h, w, channels, 2, 2));
    }
    all.push_back(pool(2, 7, 6, channels, 3, 2));
    all.push_back(pool(2, 7, 6, channels, 3, 2, 1));
    all.push_back(pool(1, 5, 5, channels, 3, 1, 1));
    all.push_back(pool(1, 8, 8, channels, 2, 3));
    all.push_back(pool(1, 4, 4, channels, 2, 2, 1));
    all.push_back(pool(0, 4, 4, channels, 2, 2));
  }
  all.push_back(pool(1, 17, 17, 5, 16, 1));  // all 256 places
  PoolShape uneven = pool(2, 6, 9, 12, 2, 2);
  uneven.kernel_w = 3;
  uneven.stride_h = 1;
  uneven.pad_left = 2;
  uneven.out_h = 5;
  uneven.out_w = 5;
  all.push_back(uneven);
  PoolShape overhanging = pool(1, 5, 5, 6, 2, 2);  // windows reach past the right and the bottom
  overhanging.out_h = overhanging.out_w = 3;
  all.push_back(overhanging);
  return all;
}

int64_t in_size(const PoolShape& s) { return s.rows * s.in_h * s.in_w * s.channels; }
int64_t out_size(const PoolShape& s) { return s.rows * s.out_h * s.out_w * s.channels; }

// Calls body(output index, input index, place) for every element of every window, in order.
template <class Body>
void naive_windows(const PoolShape& s, const Body& body) {
  int64_t out = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t oy = 0; oy < s.out_h; ++oy)
      for (int64_t ox = 0; ox < s.out_w; ++ox)
        for (int64_t c = 0; c < s.channels; ++c, ++out)
          for (int64_t k = 0; k < s.kernel_h * s.kernel_w; ++k) {
            const int64_t y = oy * s.stride_h - s.pad_top + k / s.kernel_w;
            const int64_t x = ox * s.stride_w - s.pad_left + k % s.kernel_w;
            if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w) continue;
            body(out, ((r * s.in_h + y) * s.in_w + x) * s.channels + c, k);
          }
}

struct Maxima {
  std::vector<float> y;
  std::vector<uint8_t> where;
};

Maxima naive_max(const PoolShape& s, bool relu, const std::vector<float>& x) {
  const auto n = static_cast<size_t>(out_size(s));
  Maxima m{std::vector<float>(n, -std::numeric_limits<float>::infinity()), std::vector<uint8_t>(n)};
  naive_windows(s, [&](int64_t out, int64_t in, int64_t place) {
    if (x[in] <= m.y[out]) return;
    m.y[out] = x[in];
    m.where[out] = static_cast<uint8_t>(place);
  });
  if (relu) {
    for (float& v : m.y) v = std::max(0.0f, v);
  }
  return m;
}

Maxima kernel_max(const PoolShape& s, bool relu, const std::vector<float>& x) {
  const auto n = static_cast<size_t>(out_size(s));
  Maxima m{std::vector<float>(n), std::vector<uint8_t>(n)};
  max_pool_forward(s, relu, x.data(), m.y.data(), m.where.data());
  return m;
}

TEST(KernelsPool, MaximumAndItsPlaceMatchPlainLoops) {
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      for (const bool relu : {false, true}) {
        // All below zero in part, so that padding taken for zero would win.
        const std::vector<float> x = random_floats(in_size(s), 1, -3, relu ? 2 : -1);
        const Maxima expected = naive_max(s, relu, x), actual = kernel_max(s, relu, x);
        ASSERT_EQ(actual.y, expected.y) << s.in_h << " × " << s.in_w << " × " << s.channels;
        ASSERT_EQ(actual.where, expected.where);
      }
    }
  });
}

TEST(KernelsPool, FirstOfEqualsWins) {
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      std::vector<float> x = random_floats(in_size(s), 2, 0, 3);
      for (float& v : x) v = std::floor(v);  // three values: ties in most windows
      ASSERT_EQ(kernel_max(s, false, x).where, naive_max(s, false, x).where);
    }
    const PoolShape s = pool(1, 2, 2, 40, 2, 2);
    EXPECT_EQ(kernel_max(s, false, std::vector<float>(160, 1.0f)).where, std::vector<uint8_t>(40));
  });
}

TEST(KernelsPool, GradientGoesToTheWinnerAndEverythingElseIsZero) {
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      for (const bool relu : {false, true}) {
        const std::vector<float> x = random_floats(in_size(s), 3, -3, 1);
        const std::vector<float> dy = random_floats(out_size(s), 4);
        const Maxima m = naive_max(s, relu, x);
        std::vector<float> expected(x.size()), dx(x.size(), 99.0f);
        naive_windows(s, [&](int64_t out, int64_t in, int64_t place) {
          if (place == m.where[out] && (!relu || m.y[out] > 0)) expected[in] += dy[out];
        });
        max_pool_backward(s, relu, relu ? m.y.data() : nullptr, m.where.data(), dy.data(),
                          dx.data());
        ASSERT_EQ(dx, expected) << s.in_h << " × " << s.in_w << " × " << s.channels;
      }
    }
  });
}

TEST(KernelsPool, AverageIsOverElementsInsideTheImage) {
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      const std::vector<float> x = random_floats(in_size(s), 5), dy = random_floats(out_size(s), 6);
      std::vector<double> sums(dy.size()), counts(dy.size()), expected_dx(x.size());
      naive_windows(s, [&](int64_t out, int64_t in, int64_t) {
        sums[out] += x[in];
        counts[out] += 1;
      });
      naive_windows(
          s, [&](int64_t out, int64_t in, int64_t) { expected_dx[in] += dy[out] / counts[out]; });
      std::vector<float> y(dy.size()), dx(x.size(), 99.0f);
      average_pool_forward(s, x.data(), y.data());
      average_pool_backward(s, dy.data(), dx.data());
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_TRUE(near(y[i], sums[i] / counts[i], 1e-6));
      }
      for (size_t i = 0; i < dx.size(); ++i) ASSERT_TRUE(near(dx[i], expected_dx[i], 1e-6));
    }
  });
}

TEST(KernelsPool, GlobalAverageMatchesDouble) {
  for_each_target([] {
    for (const int64_t channels : {1, 5, 8, 31, 32, 67}) {
      for (const int64_t pixels : {1, 2, 49, 101}) {
        const int64_t rows = 3;
        const std::vector<float> x = random_floats(rows * pixels * channels, 7);
        const std::vector<float> dy = random_floats(rows * channels, 8);
        std::vector<float> y(dy.size()), dx(x.size());
        global_average_forward(rows, pixels, channels, x.data(), y.data());
        global_average_backward(rows, pixels, channels, dy.data(), dx.data());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < channels; ++c) {
            double sum = 0;
            for (int64_t p = 0; p < pixels; ++p) {
              const int64_t i = (r * pixels + p) * channels + c;
              sum += x[i];
              ASSERT_EQ(dx[i], dy[r * channels + c] / static_cast<float>(pixels));
            }
            ASSERT_TRUE(near(y[r * channels + c], sum / static_cast<double>(pixels), 1e-6));
          }
        }
      }
    }
  });
}

TEST(KernelsPool, EveryTargetGivesTheSameBits) {
  for (const PoolShape& s : shapes()) {
    const std::vector<float> x = random_floats(in_size(s), 9), dy = random_floats(out_size(s), 10);
    expect_same_bits([&] {
      std::vector<float> y(dy.size());
      average_pool_forward(s, x.data(), y.data());
      return y;
    });
    expect_same_bits([&] {
      std::vector<float> dx(x.size());
      average_pool_backward(s, dy.data(), dx.data());
      return dx;
    });
    expect_same_bits([&] {
      std::vector<float> y(static_cast<size_t>(s.rows * s.channels));
      global_average_forward(s.rows, s.in_h * s.in_w, s.channels, x.data(), y.data());
      return y;
    });
  }
}

}  // namespace
}  // namespace starling
