#include "tensor/conv_pool.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/conv_pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/conv_tiles-inl.h"

#ifndef STARLING_CONV_POOL_PLANES
#define STARLING_CONV_POOL_PLANES
namespace starling {
namespace {

constexpr int64_t kTaps = 9;

// The part of one image that windows see, channel by channel, with its padding.
struct Planes {
  int64_t height, width, floats;  // floats of one channel
  explicit Planes(const ConvPoolShape& s)
      : height(2 * s.out_h + 2), width(2 * s.out_w + 2), floats(height * width) {}

  void fill(const ConvPoolShape& s, const float* image, float* planes) const {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t i = 0; i < height; ++i) {
        const int64_t y = i - s.pad_top;
        float* to = planes + c * floats + i * width;
        const int64_t first = std::clamp<int64_t>(s.pad_left, 0, width),
                      last = std::clamp<int64_t>(s.in_w + s.pad_left, first, width);
        if (y < 0 || y >= s.in_h) {
          std::fill_n(to, width, 0.0f);
          continue;
        }
        const float* from = image + (y * s.in_w - s.pad_left) * s.channels + c;
        std::fill_n(to, first, 0.0f);
        if (s.channels == 1) {
          std::copy(from + first, from + last, to + first);
        } else {
          for (int64_t j = first; j < last; ++j) to[j] = from[j * s.channels];
        }
        std::fill(to + last, to + width, 0.0f);
      }
    }
  }
};

// Memory that is asked for line by line, into the second cache.
class Soon {
 public:
  explicit Soon(std::span<const float> floats) : at_(floats.data()), end_(at_ + floats.size()) {}

  void ask(int pixels) {
    if (at_ >= end_) return;
    for (int line = 0; line < pixels * kLines; ++line)
      __builtin_prefetch(at_ + line * kLineFloats, 0, 2);
    at_ += pixels * kLines * kLineFloats;
  }

 private:
  static constexpr int kLines = 3;  // for a pixel: more would make the core wait
  static constexpr int kLineFloats = 16;
  const float *at_, *end_;
};

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

template <class D>
using Ints = hn::RebindToSigned<D>;
template <class D>
using Bytes = hn::Rebind<uint8_t, D>;
template <class D>
constexpr int64_t lanes_of(D d) {
  return hn::MaxLanes(d);
}

// Sums under way at once, as far as registers go: an addition waits for the one before it in its
// sum, and so does what finds the greatest for the last of them.
constexpr int kMostSums = HWY_TARGET == HWY_AVX3 ? 16 : 8;

template <class V>
HWY_INLINE V positive(V x) {  // NaN stays
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(hn::DFromV<V>())), x);
}

// The greatest of four, stored with its place.
template <class D, bool kRelu>
HWY_INLINE void store_greatest(D d, const hn::Vec<D>* sums, int64_t stride, float* y,
                               uint8_t* where) {
  const Ints<D> ints;
  const Bytes<D> bytes;
  const auto sum = [&](int q) { return sums[q * stride]; };
  // Pairs meet in order, and only a greater one wins: so the first of equals does.
  const auto second = hn::Gt(sum(1), sum(0)), fourth = hn::Gt(sum(3), sum(2));
  const auto upper = hn::Max(sum(1), sum(0)), lower = hn::Max(sum(3), sum(2));
  const auto below = hn::Gt(lower, upper);
  const auto best = hn::Max(lower, upper);
  hn::StoreU(kRelu ? positive(best) : best, d, y);
  const auto one = hn::Set(ints, 1), two = hn::Set(ints, 2);
  const auto above = hn::IfThenElseZero(hn::RebindMask(ints, second), one);
  const auto under = hn::Or(hn::IfThenElseZero(hn::RebindMask(ints, fourth), one), two);
  const auto place = hn::IfThenElse(hn::RebindMask(ints, below), under, above);
  hn::StoreU(hn::DemoteTo(bytes, place), bytes, where);
}

// The four outputs of the convolution under each of kPixels pooled pixels side by side, for
// kVectors vectors of filters: `corner` is the first of the first one's 4×4 inputs. Stores the
// greatest of each four and their places.
template <class D, int kVectors, int kPixels, bool kRelu>
HWY_INLINE void pool_pixels(const ConvPoolShape& s, const Planes& planes, const float* corner,
                            const float* HWY_RESTRICT weights, const float* bias, float* y,
                            uint8_t* where) {
  using V = hn::Vec<D>;
  const D d;
  V sums[kPixels][4][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const V start = bias != nullptr ? hn::LoadU(d, bias + v * lanes_of(d)) : hn::Zero(d);
    for (int p = 0; p < kPixels; ++p) {
      for (int q = 0; q < 4; ++q) sums[p][q][v] = start;
    }
  }
  for (int64_t c = 0; c < s.channels; ++c, corner += planes.floats) {
    for (int ky = 0; ky < 3; ++ky) {
      for (int kx = 0; kx < 3; ++kx, weights += s.filters) {
        V w[kVectors];
        for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, weights + v * lanes_of(d));
        for (int p = 0; p < kPixels; ++p) {
          for (int q = 0; q < 4; ++q) {
            const V x = hn::Set(d, corner[(q / 2 + ky) * planes.width + 2 * p + q % 2 + kx]);
            for (int v = 0; v < kVectors; ++v) sums[p][q][v] = hn::MulAdd(x, w[v], sums[p][q][v]);
          }
        }
      }
    }
  }
  for (int p = 0; p < kPixels; ++p, y += s.filters, where += s.filters) {
    for (int v = 0; v < kVectors; ++v)
      store_greatest<D, kRelu>(d, &sums[p][0][v], kVectors, y + v * lanes_of(d),
                               where + v * lanes_of(d));
  }
}

// One image, for as many filters from `filter` on as fill kVectors vectors again and again. Returns
// the first filter that is left.
template <class D, int kVectors, bool kRelu>
int64_t pool_image(const ConvPoolShape& s, const Planes& planes, const float* plane, int64_t filter,
                   const float* weights, const float* bias, float* y, uint8_t* where, Soon& soon) {
  constexpr int64_t kFilters = kVectors * lanes_of(D());
  constexpr int kPixels = std::max(1, kMostSums / (4 * kVectors));
  for (; filter + kFilters <= s.filters; filter += kFilters) {
    const float* const start = bias != nullptr ? bias + filter : nullptr;
    for (int64_t py = 0; py < s.out_h; ++py) {
      const float* corner = plane + 2 * py * planes.width;
      int64_t at = py * s.out_w * s.filters + filter, left = s.out_w;
      const auto pool = [&](auto pixels) HWY_ATTR {
        for (; left >= pixels; left -= pixels) {
          soon.ask(pixels);
          pool_pixels<D, kVectors, pixels, kRelu>(s, planes, corner, weights + filter, start,
                                                  y + at, where + at);
          corner += 2 * pixels;
          at += pixels * s.filters;
        }
      };
      pool(std::integral_constant<int, kPixels>());
      if constexpr (kPixels > 1) pool(std::integral_constant<int, 1>());
    }
  }
  return filter;
}

template <bool kRelu>
void forward_images(const ConvPoolShape& s, const float* x, const float* weights, const float* bias,
                    float* y, uint8_t* where, float* scratch, Soon soon) {
  constexpr int kPair = static_cast<int>(16 / kTileLanes),
                kSingle = static_cast<int>(8 / kTileLanes);
  const Planes planes(s);
  float* const plane = scratch;
  float* const turned = plane + s.channels * planes.floats;  // [channel][tap][filter]
  for (int64_t k = 0; k < s.filters; ++k) {
    for (int64_t i = 0; i < s.channels * kTaps; ++i)
      turned[i * s.filters + k] = weights[k * s.channels * kTaps + i];
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    planes.fill(s, x + r * s.in_h * s.in_w * s.channels, plane);
    const int64_t at = r * s.out_h * s.out_w * s.filters;
    int64_t k = 0;
    if constexpr (kWideLanes == 16) {
      k = pool_image<WideTag, 2, kRelu>(s, planes, plane, k, turned, bias, y + at, where + at,
                                        soon);
      k = pool_image<WideTag, 1, kRelu>(s, planes, plane, k, turned, bias, y + at, where + at,
                                        soon);
    }
    k = pool_image<TileTag, kPair, kRelu>(s, planes, plane, k, turned, bias, y + at, where + at,
                                          soon);
    pool_image<TileTag, kSingle, kRelu>(s, planes, plane, k, turned, bias, y + at, where + at,
                                        soon);
  }
}

void forward(const ConvPoolShape& s, bool relu, const float* x, const float* weights,
             const float* bias, float* y, uint8_t* where, float* scratch, const Soon& soon) {
  (relu ? forward_images<true> : forward_images<false>)(s, x, weights, bias, y, where, scratch,
                                                        soon);
}

// Gradients of a vector of filters at one pooled pixel, and the inputs that each of them met: lane
// by lane those of the winner's place.
template <class D>
struct Winners {
  using V = hn::Vec<D>;

  const float* corner;
  int64_t width;
  V gradient;
  hn::Vec<Ints<D>> place;

  // sums[t] += gradient · input.
  HWY_INLINE void add(V* sums) const {
    const D d;
    const Ints<D> ints;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    // Inputs are picked by a permutation from rows of four, of which places 0, 1, 2, 3 are elements
    // 0, 1, 4, 5: from two of them, or from all four.
    const hn::FixedTag<float, 4> four;
    const hn::FixedTag<float, 8> two_rows;
    const auto first = hn::Add(place, hn::And(place, hn::Set(ints, 2)));
    const auto rows_from = [&](int ky) {
      return hn::Combine(two_rows, hn::LoadU(four, corner + (ky + 1) * width),
                         hn::LoadU(four, corner + ky * width));
    };
    if constexpr (lanes_of(d) == 16) {
      const V rows = hn::Combine(d, rows_from(2), rows_from(0));
      for (int t = 0; t < kTaps; ++t) {
        const auto at = hn::Add(first, hn::Set(ints, t / 3 * 4 + t % 3));
        const V x = hn::TableLookupLanes(rows, hn::IndicesFromVec(d, at));
        sums[t] = hn::MulAdd(x, gradient, sums[t]);
      }
    } else {
      for (int ky = 0; ky < 3; ++ky) {
        const V rows = rows_from(ky);
        for (int kx = 0; kx < 3; ++kx) {
          const auto indices = hn::IndicesFromVec(d, hn::Add(first, hn::Set(ints, kx)));
          const V x = hn::TableLookupLanes(rows, indices);
          sums[ky * 3 + kx] = hn::MulAdd(x, gradient, sums[ky * 3 + kx]);
        }
      }
    }
#else
    for (int t = 0; t < kTaps; ++t) {
      V x = hn::Set(d, corner[t / 3 * width + t % 3]);
      for (int q = 1; q < 4; ++q) {
        const auto here = hn::RebindMask(d, hn::Eq(place, hn::Set(ints, q)));
        x = hn::IfThenElse(here, hn::Set(d, corner[(t / 3 + q / 2) * width + t % 3 + q % 2]), x);
      }
      sums[t] = hn::MulAdd(x, gradient, sums[t]);
    }
#endif
  }
};

// One image, one channel of it, one vector of filters: adds to sums[tap][filters] and, if not null,
// bias_sums.
template <class D, bool kRelu>
void add_gradients(const ConvPoolShape& s, const Planes& planes, const float* plane, const float* y,
                   const uint8_t* where, const float* dy, float* sums, float* bias_sums) {
  using V = hn::Vec<D>;
  const D d;
  V total[kTaps], bias_total = hn::Zero(d);
  for (int t = 0; t < kTaps; ++t) total[t] = hn::Zero(d);
  for (int64_t py = 0; py < s.out_h; ++py) {
    for (int64_t px = 0; px < s.out_w; ++px) {
      const int64_t at = (py * s.out_w + px) * s.filters;
      V gradient = hn::LoadU(d, dy + at);
      if constexpr (kRelu)
        gradient = hn::IfThenElseZero(hn::Gt(hn::LoadU(d, y + at), hn::Zero(d)), gradient);
      const auto place = hn::PromoteTo(Ints<D>(), hn::LoadU(Bytes<D>(), where + at));
      Winners<D>{plane + 2 * py * planes.width + 2 * px, planes.width, gradient, place}.add(total);
      bias_total = hn::Add(bias_total, gradient);
    }
  }
  for (int t = 0; t < kTaps; ++t) {
    float* to = sums + t * s.filters;
    hn::StoreU(hn::Add(hn::LoadU(d, to), total[t]), d, to);
  }
  if (bias_sums != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, bias_sums), bias_total), d, bias_sums);
}

template <bool kRelu>
void add_image(const ConvPoolShape& s, const Planes& planes, const float* plane, int64_t at,
               const float* y, const uint8_t* where, const float* dy, float* sums,
               float* bias_sums) {
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t k = 0; k < s.filters;) {
      const bool wide = k + kWideLanes <= s.filters;
      (wide ? add_gradients<WideTag, kRelu>
            : add_gradients<TileTag, kRelu>)(s, planes, plane + c * planes.floats,
                                             kRelu ? y + at + k : nullptr, where + at + k,
                                             dy + at + k, sums + c * kTaps * s.filters + k,
                                             c == 0 ? bias_sums + k : nullptr);
      k += wide ? kWideLanes : kTileLanes;
    }
  }
}

void backward(const ConvPoolShape& s, bool relu, const float* x, const float* y,
              const uint8_t* where, const float* dy, bool accumulate, float* dw, float* db,
              float* scratch) {
  const Planes planes(s);
  float* const plane = scratch;
  float* const sums = plane + s.channels * planes.floats;  // [channel][tap][filter]
  float* const bias_sums = sums + s.channels * kTaps * s.filters;
  std::fill_n(sums, (s.channels * kTaps + 1) * s.filters, 0.0f);
  for (int64_t r = 0; r < s.rows; ++r) {
    planes.fill(s, x + r * s.in_h * s.in_w * s.channels, plane);
    (relu ? add_image<true> : add_image<false>)(s, planes, plane, r * s.out_h * s.out_w * s.filters,
                                                y, where, dy, sums, bias_sums);
  }
  const int64_t per_filter = s.channels * kTaps;
  for (int64_t k = 0; k < s.filters; ++k) {
    for (int64_t i = 0; i < per_filter; ++i) {
      float& to = dw[k * per_filter + i];
      to = accumulate ? to + sums[i * s.filters + k] : sums[i * s.filters + k];
    }
    if (db != nullptr) db[k] = accumulate ? db[k] + bias_sums[k] : bias_sums[k];
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

size_t conv_pool_scratch_floats(const ConvPoolShape& shape) {
  return static_cast<size_t>(shape.channels * Planes(shape).floats +
                             (shape.channels * kTaps + 1) * shape.filters);
}

void conv_pool_forward(const ConvPoolShape& shape, bool relu, const float* x, const float* weights,
                       const float* bias, float* y, uint8_t* where, float* scratch,
                       std::span<const float> soon) {
  HWY_DYNAMIC_DISPATCH(forward)(shape, relu, x, weights, bias, y, where, scratch, Soon(soon));
}

void conv_pool_backward(const ConvPoolShape& shape, bool relu, const float* x, const float* y,
                        const uint8_t* where, const float* dy, bool accumulate, float* dw,
                        float* db, float* scratch) {
  HWY_DYNAMIC_DISPATCH(backward)
  (shape, relu, x, y, where, dy, accumulate, dw, db, scratch);
}

}  // namespace starling
#endif
