#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "tensor/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// Sums run in f32 inside a block of rows, which also stays in cache while strips go over it.
constexpr int64_t kBlockRows = 128;

// The moments of one block of rows, joined to those of the rows before it. Values are taken
// relative to a shift near their mean, so that squares lose nothing to it: the mean so far, or in
// the first block its own. A block far from the mean so far does no harm: its distance is then
// part of the variance.
struct MomentStrip {
  const float* x;
  int64_t channels, first, last;
  double* mean;
  double* m2;

  template <int kVectors, bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    HWY_ALIGN float shifts[kVectors * kLanes] = {};
    HWY_ALIGN float sums[kVectors * kLanes], squares[kVectors * kLanes];
    if (first == 0) {
      add_up<kVectors, kPartial, false>(c, n, shifts, sums, squares);
      for (int64_t i = 0; i < n; ++i) shifts[i] = sums[i] / static_cast<float>(last);
    } else {
      for (int64_t i = 0; i < n; ++i) shifts[i] = static_cast<float>(mean[c + i]);
    }
    add_up<kVectors, kPartial, true>(c, n, shifts, sums, squares);
    // Chan's formula for two groups.
    const auto before = static_cast<double>(first), here = static_cast<double>(last - first);
    const double inverse = 1 / here, share = here / (before + here), weight = before * share;
    for (int64_t i = 0; i < n; ++i) {
      const double sum = sums[i], mean_before = first == 0 ? 0 : mean[c + i];
      const double m2_here = std::max(squares[i] - sum * sum * inverse, 0.0);
      const double delta = (shifts[i] - mean_before) + sum * inverse;
      mean[c + i] = mean_before + delta * share;
      m2[c + i] = (first == 0 ? 0 : m2[c + i]) + m2_here + delta * delta * weight;
    }
  }

  // Sums, and squares if wanted, of x − shift: even and odd rows apart, then together.
  template <int kVectors, bool kPartial, bool kSquares>
  HWY_INLINE void add_up(int64_t c, int64_t n, const float* shifts, float* sums,
                         float* squares) const {
    Floats shift[kVectors], sum[2][kVectors], square[2][kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      shift[v] = hn::Load(kFloats, shifts + v * kLanes);
      sum[0][v] = sum[1][v] = square[0][v] = square[1][v] = zeros();
    }
    const float* row = x + first * channels + c;
    int64_t r = first;
    for (; r + 2 <= last; r += 2, row += 2 * channels) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const Floats d0 = hn::Sub(load<kPartial>(row + v * kLanes, n), shift[v]);
        const Floats d1 = hn::Sub(load<kPartial>(row + channels + v * kLanes, n), shift[v]);
        sum[0][v] = hn::Add(sum[0][v], d0);
        sum[1][v] = hn::Add(sum[1][v], d1);
        if constexpr (kSquares) {
          square[0][v] = hn::Add(square[0][v], hn::Mul(d0, d0));
          square[1][v] = hn::Add(square[1][v], hn::Mul(d1, d1));
        }
      }
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      if (r < last) {
        const Floats d = hn::Sub(load<kPartial>(row + v * kLanes, n), shift[v]);
        sum[0][v] = hn::Add(sum[0][v], d);
        square[0][v] = hn::Add(square[0][v], hn::Mul(d, d));
      }
      hn::Store(hn::Add(sum[0][v], sum[1][v]), kFloats, sums + v * kLanes);
      hn::Store(hn::Add(square[0][v], square[1][v]), kFloats, squares + v * kLanes);
    }
  }
};

template <bool kRelu>
struct AffineRow {
  const float* a;
  const float* b;
  const float* x;
  float* y;
  template <bool kPartial>
  HWY_INLINE void run(int64_t i, int64_t n) const {
    const Floats v = hn::Add(hn::Mul(load<kPartial>(x + i, n), load<kPartial>(a + i, n)),
                             load<kPartial>(b + i, n));
    store<kPartial>(kRelu ? at_least(zeros(), v) : v, y + i, n);
  }
};

template <bool kRelu>
void affine_rows(int64_t n, int64_t channels, const float* a, const float* b, const float* x,
                 float* y) {
  for (int64_t r = 0; r < n; ++r, x += channels, y += channels) {
    for_vectors(channels, AffineRow<kRelu>{a, b, x, y});
  }
}

// The gradient that reaches the normalisation.
template <bool kRelu>
struct Gradient {
  const float* y;
  const float* dy;
  template <bool kPartial>
  HWY_INLINE Floats at(int64_t i, int64_t n) const {
    const Floats g = load<kPartial>(dy + i, n);
    if constexpr (kRelu) return Relu{}.backward(load<kPartial>(y + i, n), g);
    return g;
  }
};

// Adds the rows of a block to Σ g and Σ g · (x − mean) of each channel.
template <bool kRelu>
struct GradientSums {
  Gradient<kRelu> gradient;
  const float* x;
  const float* mean;
  int64_t channels, first, last;
  float* sum_g;
  float* sum_gx;
  template <int kVectors, bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats m[kVectors], g_sum[2][kVectors], gx_sum[2][kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      m[v] = load<kPartial>(mean + c + v * kLanes, n);
      g_sum[0][v] = g_sum[1][v] = gx_sum[0][v] = gx_sum[1][v] = zeros();
    }
    int64_t r = first;
    for (; r + 2 <= last; r += 2) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const int64_t i = r * channels + c + v * kLanes;
        add<kPartial>(i, n, m[v], g_sum[0][v], gx_sum[0][v]);
        add<kPartial>(i + channels, n, m[v], g_sum[1][v], gx_sum[1][v]);
      }
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = c + v * kLanes;
      if (r < last) add<kPartial>(r * channels + i, n, m[v], g_sum[0][v], gx_sum[0][v]);
      const Floats g = hn::Add(g_sum[0][v], g_sum[1][v]);
      const Floats gx = hn::Add(gx_sum[0][v], gx_sum[1][v]);
      store<kPartial>(hn::Add(load<kPartial>(sum_g + i, n), g), sum_g + i, n);
      store<kPartial>(hn::Add(load<kPartial>(sum_gx + i, n), gx), sum_gx + i, n);
    }
  }
  template <bool kPartial>
  HWY_INLINE void add(int64_t i, int64_t n, Floats m, Floats& g_sum, Floats& gx_sum) const {
    const Floats g = gradient.template at<kPartial>(i, n);
    g_sum = hn::Add(g_sum, g);
    gx_sum = hn::Add(gx_sum, hn::Mul(g, hn::Sub(load<kPartial>(x + i, n), m)));
  }
};

// dx = scale · inverse · (g − mean of g − (x − mean) · inverse² · mean of g · (x − mean)).
template <bool kRelu>
struct GradientOfInput {
  Gradient<kRelu> gradient;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* scale;
  const float* sum_g;
  const float* sum_gx;
  float count;
  int64_t channels, first, last;
  float* dx;
  template <int kVectors, bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats m[kVectors], factor[kVectors], mean_g[kVectors], slope[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = c + v * kLanes;
      const Floats inv = load<kPartial>(inverse + i, n);
      m[v] = load<kPartial>(mean + i, n);
      factor[v] = hn::Mul(load<kPartial>(scale + i, n), inv);
      mean_g[v] = hn::Div(load<kPartial>(sum_g + i, n), all(count));
      slope[v] = hn::Mul(hn::Mul(inv, inv), hn::Div(load<kPartial>(sum_gx + i, n), all(count)));
    }
    for (int64_t r = first; r < last; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const int64_t i = r * channels + c + v * kLanes;
        const Floats g = hn::Sub(gradient.template at<kPartial>(i, n), mean_g[v]);
        const Floats along = hn::Mul(hn::Sub(load<kPartial>(x + i, n), m[v]), slope[v]);
        store<kPartial>(hn::Mul(factor[v], hn::Sub(g, along)), dx + i, n);
      }
    }
  }
};

template <bool kRelu>
void norm_backward(int64_t n, int64_t channels, const float* x, Gradient<kRelu> gradient,
                   const float* mean, const float* inverse, const float* scale, float* dx,
                   bool accumulate, float* dscale, float* dshift, float* scratch) {
  float* sum_g = scratch;
  float* sum_gx = scratch + channels;
  std::fill(scratch, scratch + 2 * channels, 0.0f);
  for (int64_t r = 0; r < n; r += kBlockRows) {
    for_strips<2>(channels, GradientSums<kRelu>{gradient, x, mean, channels, r,
                                                std::min(n, r + kBlockRows), sum_g, sum_gx});
  }
  for (int64_t c = 0; c < channels; ++c) {
    dscale[c] = (accumulate ? dscale[c] : 0.0f) + sum_gx[c] * inverse[c];
    dshift[c] = (accumulate ? dshift[c] : 0.0f) + sum_g[c];
  }
  if (dx == nullptr) return;
  for (int64_t r = 0; r < n; r += kBlockRows) {
    const int64_t last = std::min(n, r + kBlockRows);
    for_strips<2>(channels, GradientOfInput<kRelu>{gradient, x, mean, inverse, scale, sum_g, sum_gx,
                                                   static_cast<float>(n), channels, r, last, dx});
  }
}

}  // namespace

void batch_moments(int64_t n, int64_t channels, const float* x, double* mean, double* m2) {
  if (n == 0) {
    std::fill(mean, mean + channels, 0.0);
    std::fill(m2, m2 + channels, 0.0);
  }
  for (int64_t r = 0; r < n; r += kBlockRows) {
    for_strips<2>(channels, MomentStrip{x, channels, r, std::min(n, r + kBlockRows), mean, m2});
  }
}

void channel_affine(int64_t n, int64_t channels, const float* a, const float* b, bool relu,
                    const float* x, float* y) {
  if (relu) return affine_rows<true>(n, channels, a, b, x, y);
  affine_rows<false>(n, channels, a, b, x, y);
}

void batch_norm_backward(int64_t n, int64_t channels, const float* x, const float* y, bool relu,
                         const float* mean, const float* inverse, const float* scale,
                         const float* dy, float* dx, bool accumulate, float* dscale, float* dshift,
                         float* scratch) {
  if (relu) {
    norm_backward(n, channels, x, Gradient<true>{y, dy}, mean, inverse, scale, dx, accumulate,
                  dscale, dshift, scratch);
  } else {
    norm_backward(n, channels, x, Gradient<false>{nullptr, dy}, mean, inverse, scale, dx,
                  accumulate, dscale, dshift, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(batch_moments);
HWY_EXPORT(channel_affine);
HWY_EXPORT(batch_norm_backward);

void batch_moments(int64_t n, int64_t channels, const float* x, double* mean, double* m2) {
  HWY_DYNAMIC_DISPATCH(batch_moments)(n, channels, x, mean, m2);
}

void channel_affine(int64_t n, int64_t channels, const float* a, const float* b, bool relu,
                    const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(channel_affine)(n, channels, a, b, relu, x, y);
}

void batch_norm_backward(int64_t n, int64_t channels, const float* x, const float* y, bool relu,
                         const float* mean, const float* inverse, const float* scale,
                         const float* dy, float* dx, bool accumulate, float* dscale, float* dshift,
                         float* scratch) {
  HWY_DYNAMIC_DISPATCH(batch_norm_backward)
  (n, channels, x, y, relu, mean, inverse, scale, dy, dx, accumulate, dscale, dshift, scratch);
}

}  // namespace starling
#endif  // HWY_ONCE
