#include "tensor/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels_pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "tensor/kernels-inl.h"

// Places in a window: shared by all targets, so defined once.
#ifndef STARLING_TENSOR_KERNELS_POOL_WINDOW_
#define STARLING_TENSOR_KERNELS_POOL_WINDOW_
namespace starling {
namespace {

// Windows that tile the image two by two, but for a last odd row or column.
bool is_two_by_two(const PoolShape& s) {
  return s.kernel_h == 2 && s.kernel_w == 2 && s.stride_h == 2 && s.stride_w == 2 &&
         s.pad_top == 0 && s.pad_left == 0 && 2 * s.out_h <= s.in_h && 2 * s.out_w <= s.in_w;
}

// The part of one window that lies inside the image, and where the window stands.
struct PoolWindow {
  int64_t y0, y1, x0, x1;       // rows and columns of the image
  int64_t top, left;            // of the whole window: may be outside
  int64_t first_in, first_out;  // index of channel 0 of the sample's image, of the output pixel
  int64_t size() const { return std::max<int64_t>(0, y1 - y0) * std::max<int64_t>(0, x1 - x0); }
};

// Calls body(window) for every output pixel, in order.
template <class Body>
void for_windows(const PoolShape& s, const Body& body) {
  int64_t first_out = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t oy = 0; oy < s.out_h; ++oy) {
      const int64_t top = oy * s.stride_h - s.pad_top;
      for (int64_t ox = 0; ox < s.out_w; ++ox, first_out += s.channels) {
        const int64_t left = ox * s.stride_w - s.pad_left;
        body(PoolWindow{.y0 = std::max<int64_t>(0, top),
                        .y1 = std::min(s.in_h, top + s.kernel_h),
                        .x0 = std::max<int64_t>(0, left),
                        .x1 = std::min(s.in_w, left + s.kernel_w),
                        .top = top,
                        .left = left,
                        .first_in = r * s.in_h * s.in_w * s.channels,
                        .first_out = first_out});
      }
    }
  }
}

}  // namespace
}  // namespace starling
#endif  // STARLING_TENSOR_KERNELS_POOL_WINDOW_

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

using Ints = hn::Vec<IntTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
constexpr IntTag kInts;

// kLanes places, one byte each, as integers; and back.
template <bool kPartial>
HWY_INLINE Ints load_places(const uint8_t* p, int64_t n) {
  if constexpr (kPartial) {
    uint8_t bytes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) bytes[i] = p[i];
    return hn::PromoteTo(kInts, hn::LoadU(ByteTag(), bytes));
  }
  return hn::PromoteTo(kInts, hn::LoadU(ByteTag(), p));
}

template <bool kPartial>
HWY_INLINE void store_places(Ints places, uint8_t* p, int64_t n) {
  const auto bytes = hn::DemoteTo(ByteTag(), places);
  if constexpr (kPartial) {
    uint8_t all_bytes[kLanes];
    hn::StoreU(bytes, ByteTag(), all_bytes);
    for (int64_t i = 0; i < n; ++i) p[i] = all_bytes[i];
  } else {
    hn::StoreU(bytes, ByteTag(), p);
  }
}

// --- maximum of 2 × 2 with stride 2 --------------------------------------------------------------

// Four input pixels and their output pixel; a vector of channels at a time.
template <bool kRelu>
struct MaxOfFour {
  const float* top;     // two pixels side by side
  const float* bottom;  // the two below them
  int64_t channels;
  float* y;
  uint8_t* where;

  // Stores the maxima of channels c …; returns their places times 2^kShift. Pairs meet as in a
  // tournament, in order, and only a greater one wins: so the first of equals does.
  template <bool kPartial, int kShift>
  HWY_INLINE Ints pick(int64_t c, int64_t n) const {
    const Floats x0 = load<kPartial>(top + c, n);
    const Floats x1 = load<kPartial>(top + channels + c, n);
    const Floats x2 = load<kPartial>(bottom + c, n);
    const Floats x3 = load<kPartial>(bottom + channels + c, n);
    const auto second = hn::Gt(x1, x0);
    const auto fourth = hn::Gt(x3, x2);
    const Floats upper = hn::Max(x1, x0);
    const Floats lower = hn::Max(x3, x2);
    const auto below = hn::Gt(lower, upper);
    const Floats best = hn::Max(lower, upper);
    store<kPartial>(kRelu ? at_least(zeros(), best) : best, y + c, n);
    const Ints one = hn::Set(kInts, 1 << kShift), two = hn::Set(kInts, 2 << kShift);
    const Ints place_above = hn::IfThenElseZero(hn::RebindMask(kInts, second), one);
    const Ints place_below = hn::Or(hn::IfThenElseZero(hn::RebindMask(kInts, fourth), one), two);
    return hn::IfThenElse(hn::RebindMask(kInts, below), place_below, place_above);
  }

  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    store_places<kPartial>(pick<kPartial, 0>(c, n), where + c, n);
  }

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
  // Four vectors, whose places are laid over each other in the bytes of one and sorted out by two
  // shuffles: cheaper than narrowing each.
  HWY_INLINE void run_four(int64_t c) const {
    const auto merged = hn::Or(
        hn::Or(pick<false, 0>(c, kLanes), pick<false, 8>(c + kLanes, kLanes)),
        hn::Or(pick<false, 16>(c + 2 * kLanes, kLanes), pick<false, 24>(c + 3 * kLanes, kLanes)));
    const hn::Repartition<uint8_t, IntTag> bytes;
    alignas(16) static constexpr uint8_t kTranspose[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                           2, 6, 10, 14, 3, 7, 11, 15};
    auto places = hn::TableLookupBytes(merged, hn::LoadDup128(bytes, kTranspose));
#if HWY_TARGET == HWY_AVX2
    alignas(32) static constexpr int32_t kJoin[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    places = hn::BitCast(
        bytes, hn::TableLookupLanes(hn::BitCast(kInts, places), hn::SetTableIndices(kInts, kJoin)));
#endif
    hn::StoreU(places, bytes, where + c);
  }

  HWY_INLINE void run_pixel() const {
    int64_t c = 0;
    for (; c + 4 * kLanes <= channels; c += 4 * kLanes) run_four(c);
    if (c == channels) return;
    const MaxOfFour rest{top + c, bottom + c, channels, y + c, where + c};
    for_vectors(channels - c, rest);
  }
#else
  HWY_INLINE void run_pixel() const { for_vectors(channels, *this); }
#endif
};

template <bool kRelu>
void max_pool_two_by_two(const PoolShape& s, const float* x, float* y, uint8_t* where) {
  const int64_t pixel = s.channels, line = s.in_w * pixel;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t oy = 0; oy < s.out_h; ++oy) {
      const float* top = x + (r * s.in_h + 2 * oy) * line;
      for (int64_t ox = 0; ox < s.out_w; ++ox) {
        MaxOfFour<kRelu>{top, top + line, pixel, y, where}.run_pixel();
        top += 2 * pixel;
        y += pixel;
        where += pixel;
      }
    }
  }
}

// The gradient of one output pixel goes to one of its four input pixels; the others get zero.
template <bool kRelu>
struct SpreadToFour {
  const float* y;
  const uint8_t* where;
  const float* dy;
  int64_t channels;
  float* top;
  float* bottom;
  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats g = load<kPartial>(dy + c, n);
    if constexpr (kRelu) g = Relu{}.backward(load<kPartial>(y + c, n), g);
    const Ints place = load_places<kPartial>(where + c, n);
    store<kPartial>(only<0>(place, g), top + c, n);
    store<kPartial>(only<1>(place, g), top + channels + c, n);
    store<kPartial>(only<2>(place, g), bottom + c, n);
    store<kPartial>(only<3>(place, g), bottom + channels + c, n);
  }
  template <int kPlace>
  static HWY_INLINE Floats only(Ints place, Floats g) {
    return hn::IfThenElseZero(hn::RebindMask(kFloats, hn::Eq(place, hn::Set(kInts, kPlace))), g);
  }
};

template <bool kRelu>
void max_unpool_two_by_two(const PoolShape& s, const float* y, const uint8_t* where,
                           const float* dy, float* dx) {
  const int64_t pixel = s.channels, line = s.in_w * pixel;
  const int64_t covered = 2 * s.out_w * pixel;
  for (int64_t r = 0; r < s.rows; ++r) {
    float* top = dx + r * s.in_h * line;
    for (int64_t oy = 0; oy < s.out_h; ++oy, top += 2 * line) {
      for (int64_t ox = 0; ox < s.out_w; ++ox) {
        float* at = top + 2 * ox * pixel;
        for_vectors(pixel, SpreadToFour<kRelu>{y, where, dy, pixel, at, at + line});
        if constexpr (kRelu) y += pixel;
        where += pixel;
        dy += pixel;
      }
      std::fill(top + covered, top + line, 0.0f);
      std::fill(top + line + covered, top + 2 * line, 0.0f);
    }
    std::fill(top, dx + (r + 1) * s.in_h * line, 0.0f);
  }
}

// --- any window
// -----------------------------------------------------------------------------------

struct MaxOfWindow {
  const PoolShape& s;
  const PoolWindow& w;
  bool relu;
  const float* x;  // the sample's image
  float* y;
  uint8_t* where;
  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats best = zeros();
    Ints place = hn::Zero(kInts);
    bool first = true;
    for (int64_t iy = w.y0; iy < w.y1; ++iy) {
      for (int64_t ix = w.x0; ix < w.x1; ++ix) {
        const Floats v = load<kPartial>(x + (iy * s.in_w + ix) * s.channels + c, n);
        const Ints here =
            hn::Set(kInts, static_cast<int32_t>((iy - w.top) * s.kernel_w + (ix - w.left)));
        const auto wins = hn::Gt(v, best);
        best = first ? v : hn::IfThenElse(wins, v, best);
        place = first ? here : hn::IfThenElse(hn::RebindMask(kInts, wins), here, place);
        first = false;
      }
    }
    store<kPartial>(relu ? at_least(zeros(), best) : best, y + c, n);
    store_places<kPartial>(place, where + c, n);
  }
};

struct SpreadToWindow {
  const PoolShape& s;
  const PoolWindow& w;
  bool relu;
  const float* y;
  const uint8_t* where;
  const float* dy;
  float* dx;  // the sample's image
  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats g = load<kPartial>(dy + c, n);
    if (relu) g = Relu{}.backward(load<kPartial>(y + c, n), g);
    const Ints place = load_places<kPartial>(where + c, n);
    for (int64_t iy = w.y0; iy < w.y1; ++iy) {
      for (int64_t ix = w.x0; ix < w.x1; ++ix) {
        const Ints here =
            hn::Set(kInts, static_cast<int32_t>((iy - w.top) * s.kernel_w + (ix - w.left)));
        float* at = dx + (iy * s.in_w + ix) * s.channels + c;
        const auto hit = hn::RebindMask(kFloats, hn::Eq(place, here));
        store<kPartial>(hn::Add(load<kPartial>(at, n), hn::IfThenElseZero(hit, g)), at, n);
      }
    }
  }
};

struct MeanOfWindow {
  const PoolShape& s;
  const PoolWindow& w;
  float size;
  const float* x;
  float* y;
  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats sum = zeros();
    for (int64_t iy = w.y0; iy < w.y1; ++iy) {
      for (int64_t ix = w.x0; ix < w.x1; ++ix) {
        sum = hn::Add(sum, load<kPartial>(x + (iy * s.in_w + ix) * s.channels + c, n));
      }
    }
    store<kPartial>(hn::Div(sum, all(size)), y + c, n);
  }
};

struct SpreadEvenly {
  const PoolShape& s;
  const PoolWindow& w;
  float size;
  const float* dy;
  float* dx;
  template <bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    const Floats g = hn::Div(load<kPartial>(dy + c, n), all(size));
    for (int64_t iy = w.y0; iy < w.y1; ++iy) {
      for (int64_t ix = w.x0; ix < w.x1; ++ix) {
        float* at = dx + (iy * s.in_w + ix) * s.channels + c;
        store<kPartial>(hn::Add(load<kPartial>(at, n), g), at, n);
      }
    }
  }
};

// --- the whole image
// ------------------------------------------------------------------------------

struct MeanOfPixels {
  int64_t pixels, channels;
  const float* x;
  float* y;
  template <int kVectors, bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats sum[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sum[v] = zeros();
    for (int64_t p = 0; p < pixels; ++p) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        sum[v] = hn::Add(sum[v], load<kPartial>(x + p * channels + c + v * kLanes, n));
      }
    }
    const Floats count = all(static_cast<float>(pixels));
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      store<kPartial>(hn::Div(sum[v], count), y + c + v * kLanes, n);
    }
  }
};

struct SpreadToPixels {
  int64_t pixels, channels;
  const float* dy;
  float* dx;
  template <int kVectors, bool kPartial>
  HWY_INLINE void run(int64_t c, int64_t n) const {
    Floats g[kVectors];
    const Floats count = all(static_cast<float>(pixels));
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v)
      g[v] = hn::Div(load<kPartial>(dy + c + v * kLanes, n), count);
    for (int64_t p = 0; p < pixels; ++p) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v)
        store<kPartial>(g[v], dx + p * channels + c + v * kLanes, n);
    }
  }
};

// Functors rather than lambdas: a lambda would not be compiled for the target.
struct MaxForward {
  const PoolShape& s;
  bool relu;
  const float* x;
  float* y;
  uint8_t* where;
  void operator()(const PoolWindow& w) const {
    const MaxOfWindow body{s, w, relu, x + w.first_in, y + w.first_out, where + w.first_out};
    for_vectors(s.channels, body);
  }
};

struct MaxBackward {
  const PoolShape& s;
  bool relu;
  const float* y;
  const uint8_t* where;
  const float* dy;
  float* dx;
  void operator()(const PoolWindow& w) const {
    for_vectors(s.channels, SpreadToWindow{s, w, relu, relu ? y + w.first_out : nullptr,
                                           where + w.first_out, dy + w.first_out, dx + w.first_in});
  }
};

struct MeanForward {
  const PoolShape& s;
  const float* x;
  float* y;
  void operator()(const PoolWindow& w) const {
    const auto size = static_cast<float>(std::max<int64_t>(1, w.size()));
    for_vectors(s.channels, MeanOfWindow{s, w, size, x + w.first_in, y + w.first_out});
  }
};

struct MeanBackward {
  const PoolShape& s;
  const float* dy;
  float* dx;
  void operator()(const PoolWindow& w) const {
    const auto size = static_cast<float>(std::max<int64_t>(1, w.size()));
    for_vectors(s.channels, SpreadEvenly{s, w, size, dy + w.first_out, dx + w.first_in});
  }
};

}  // namespace

void max_pool_forward(const PoolShape& s, bool relu, const float* x, float* y, uint8_t* where) {
  if (!is_two_by_two(s)) return for_windows(s, MaxForward{s, relu, x, y, where});
  if (relu) return max_pool_two_by_two<true>(s, x, y, where);
  max_pool_two_by_two<false>(s, x, y, where);
}

void max_pool_backward(const PoolShape& s, bool relu, const float* y, const uint8_t* where,
                       const float* dy, float* dx) {
  if (is_two_by_two(s)) {
    if (relu) return max_unpool_two_by_two<true>(s, y, where, dy, dx);
    return max_unpool_two_by_two<false>(s, y, where, dy, dx);
  }
  std::fill(dx, dx + s.rows * s.in_h * s.in_w * s.channels, 0.0f);
  for_windows(s, MaxBackward{s, relu, y, where, dy, dx});
}

void average_pool_forward(const PoolShape& s, const float* x, float* y) {
  for_windows(s, MeanForward{s, x, y});
}

void average_pool_backward(const PoolShape& s, const float* dy, float* dx) {
  std::fill(dx, dx + s.rows * s.in_h * s.in_w * s.channels, 0.0f);
  for_windows(s, MeanBackward{s, dy, dx});
}

void global_average_forward(int64_t rows, int64_t pixels, int64_t channels, const float* x,
                            float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for_strips<4>(channels,
                  MeanOfPixels{pixels, channels, x + r * pixels * channels, y + r * channels});
  }
}

void global_average_backward(int64_t rows, int64_t pixels, int64_t channels, const float* dy,
                             float* dx) {
  for (int64_t r = 0; r < rows; ++r) {
    for_strips<4>(channels,
                  SpreadToPixels{pixels, channels, dy + r * channels, dx + r * pixels * channels});
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(max_pool_forward);
HWY_EXPORT(max_pool_backward);
HWY_EXPORT(average_pool_forward);
HWY_EXPORT(average_pool_backward);
HWY_EXPORT(global_average_forward);
HWY_EXPORT(global_average_backward);

void max_pool_forward(const PoolShape& shape, bool relu, const float* x, float* y, uint8_t* where) {
  HWY_DYNAMIC_DISPATCH(max_pool_forward)(shape, relu, x, y, where);
}

void max_pool_backward(const PoolShape& shape, bool relu, const float* y, const uint8_t* where,
                       const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(max_pool_backward)(shape, relu, y, where, dy, dx);
}

void average_pool_forward(const PoolShape& shape, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(average_pool_forward)(shape, x, y);
}

void average_pool_backward(const PoolShape& shape, const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(average_pool_backward)(shape, dy, dx);
}

void global_average_forward(int64_t rows, int64_t pixels, int64_t channels, const float* x,
                            float* y) {
  HWY_DYNAMIC_DISPATCH(global_average_forward)(rows, pixels, channels, x, y);
}

void global_average_backward(int64_t rows, int64_t pixels, int64_t channels, const float* dy,
                             float* dx) {
  HWY_DYNAMIC_DISPATCH(global_average_backward)(rows, pixels, channels, dy, dx);
}

}  // namespace starling
#endif  // HWY_ONCE
