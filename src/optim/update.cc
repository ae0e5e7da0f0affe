#include "optim/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/cache_line.h"
#include "base/claim.h"
#include "base/store_order.h"
#include "tensor/tree_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/update.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/tree_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The exponent of infinities and NaN, as bits of the absolute value.
constexpr int32_t kNotFinite = 0x7F800000;

// How early memory is asked for, in elements. The machine's own guesses stop at every page, and
// here there are five streams or more.
constexpr size_t kAhead = 256;

constexpr size_t kGroup = UndoLog::kElements;

// sums[k] = the sum of the gradients at i + k, for k < n ≤ kGroup; whether all are finite.
template <size_t kCount>
bool sum_group(const float* const* gradients, size_t i, size_t n, uint32_t claimed, float* sums) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToSigned<decltype(d)> bits;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(bits);
  size_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    for (size_t g = 0; g < kCount; ++g) __builtin_prefetch(gradients[g] + i + k + kAhead);
    const auto sum = tree_at<kCount>(d, gradients, i + k);
    largest = hn::Max(largest, hn::BitCast(bits, hn::Abs(sum)));
    hn::StoreU(sum, d, sums + k);
    if (claimed != 0 && k % kLineFloats == 0) {
      for (size_t g = 0; g < kCount; ++g) {
        if ((claimed >> g & 1) != 0) claim(gradients[g] + i + k);
      }
    }
  }
  bool finite = hn::AllFalse(bits, hn::Gt(largest, hn::Set(bits, kNotFinite - 1)));
  for (; k < n; ++k) {
    hn::StoreU(tree_at<kCount>(one, gradients, i + k), one, sums + k);
    finite = finite && std::isfinite(sums[k]);
  }
  return finite;
}

// One vector of the update. Neutral values stand for what is switched off (no clipping, no decay):
// cheaper than branches beside the memory traffic.
template <OptimizerKind kKind, class D>
HWY_INLINE void update_at(D d, const UpdateSettings& s, const float* gradient, float* weights,
                          float* first, float* second, size_t i) {
  using Kind = OptimizerKind;
  constexpr bool kIsAdam = kKind == Kind::kAdam || kKind == Kind::kAdamW;
  // Others have read the weights and must give them up; they have no part in the states.
  __builtin_prefetch(weights + i + kAhead, 1);
  if constexpr (kKind != Kind::kSgd) __builtin_prefetch(first + i + kAhead);
  if constexpr (kIsAdam) __builtin_prefetch(second + i + kAhead);
  auto w = hn::LoadU(d, weights + i);
  auto g = hn::LoadU(d, gradient);
  g = hn::Max(hn::Min(g, hn::Set(d, s.clip_value)), hn::Set(d, -s.clip_value));
  g = hn::Mul(g, hn::Set(d, s.gradient_scale));
  if constexpr (kKind == Kind::kAdamW) {
    w = hn::Mul(w, hn::Set(d, s.shrink));
  } else {
    g = hn::MulAdd(hn::Set(d, s.weight_decay), w, g);
  }
  if constexpr (kKind == Kind::kSgd) {
    w = hn::NegMulAdd(hn::Set(d, s.rate), g, w);
  } else if constexpr (kKind == Kind::kMomentum || kKind == Kind::kNesterov) {
    const auto mu = hn::Set(d, s.momentum);
    const auto velocity = hn::MulAdd(mu, hn::LoadU(d, first + i), g);
    hn::StoreU(velocity, d, first + i);
    const auto move = kKind == Kind::kNesterov ? hn::MulAdd(mu, velocity, g) : velocity;
    w = hn::NegMulAdd(hn::Set(d, s.rate), move, w);
  } else {
    const auto m = hn::MulAdd(hn::Set(d, s.beta1), hn::LoadU(d, first + i),
                              hn::Mul(hn::Set(d, s.beta1_rest), g));
    const auto v = hn::MulAdd(hn::Set(d, s.beta2), hn::LoadU(d, second + i),
                              hn::Mul(hn::Mul(hn::Set(d, s.beta2_rest), g), g));
    hn::StoreU(m, d, first + i);
    hn::StoreU(v, d, second + i);
    const auto divisor = hn::MulAdd(hn::Sqrt(v), hn::Set(d, s.adam_root), hn::Set(d, s.epsilon));
    w = hn::NegMulAdd(hn::Set(d, s.adam_rate), hn::Div(m, divisor), w);
  }
  hn::StoreU(w, d, weights + i);
}

// Copies `count` ≤ kGroup elements.
HWY_INLINE void keep(const float* array, size_t count, float* kept) {
  const hn::CappedTag<float, kGroup> d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  if (count == kGroup) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kGroup; i += kLanes) hn::StoreU(hn::LoadU(d, array + i), d, kept + i);
  } else {
    std::copy_n(array, count, kept);
  }
}

// Group by group: a sum is checked before its group is written.
template <OptimizerKind kKind>
bool update_all(UpdateSettings s, const float* const* gradients, size_t count, size_t n,
                float* weights, float* first, float* second, const UpdateSharing& sharing) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(d);
  const auto sum = with_leaves(count, [](auto leaves) HWY_ATTR { return &sum_group<leaves()>; });
  HWY_ALIGN float sums[kGroup];
  const UndoLog* const undo = sharing.undo;
  for (size_t i = undo == nullptr ? 0 : undo->first; i < n;) {
    const size_t begin = i, end = std::min(i + kGroup, n);
    if (!sum(gradients, begin, end - begin, sharing.claimed, sums)) return false;
    if (undo != nullptr) {
      const auto place = [&](size_t array) { return UndoLog::place(undo->floats, begin, array); };
      keep(weights + begin, end - begin, place(0));
      if (first != nullptr) keep(first + begin, end - begin, place(1));
      if (second != nullptr) keep(second + begin, end - begin, place(2));
      keep_store_order();
      undo->under_way->store(UndoLog::elements(begin, end - begin), std::memory_order_relaxed);
      keep_store_order();
    }
    for (; i + lanes <= end; i += lanes)
      update_at<kKind>(d, s, sums + (i - begin), weights, first, second, i);
    for (; i < end; ++i) update_at<kKind>(one, s, sums + (i - begin), weights, first, second, i);
  }
  for (float* const copy : sharing.copies) {
    float* const block = copy + sharing.offset;
    for (size_t i = 0; i < n; i += kGroup) keep(weights + i, std::min(kGroup, n - i), block + i);
  }
  return true;
}

bool update(const UpdateSettings* s, const float* const* gradients, size_t count, size_t n,
            float* weights, float* first, float* second, const UpdateSharing* sharing) {
  using Kind = OptimizerKind;
  switch (s->kind) {
    case Kind::kSgd:
      return update_all<Kind::kSgd>(*s, gradients, count, n, weights, first, second, *sharing);
    case Kind::kMomentum:
      return update_all<Kind::kMomentum>(*s, gradients, count, n, weights, first, second, *sharing);
    case Kind::kNesterov:
      return update_all<Kind::kNesterov>(*s, gradients, count, n, weights, first, second, *sharing);
    case Kind::kAdam:
      return update_all<Kind::kAdam>(*s, gradients, count, n, weights, first, second, *sharing);
    case Kind::kAdamW:
      return update_all<Kind::kAdamW>(*s, gradients, count, n, weights, first, second, *sharing);
  }
  return true;
}

// Accumulator j takes the elements i with i mod 16 = j, whatever the vector width. The square of
// an f32 is exact in f64, so fused or not makes no difference.
void square_sums(const float* x, size_t n, double* sums) {
  constexpr size_t kAccumulators = 16;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr size_t kVectors = kAccumulators / kLanes;
  hn::Vec<decltype(d)> partial[kVectors];
  for (auto& p : partial) p = hn::Zero(d);
  size_t i = 0;
  for (; i + kAccumulators <= n; i += kAccumulators) {
    for (size_t k = 0; k < kVectors; ++k) {
      const auto wide = hn::PromoteTo(d, hn::LoadU(narrow, x + i + k * kLanes));
      partial[k] = hn::MulAdd(wide, wide, partial[k]);
    }
  }
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(partial[k], d, sums + k * kLanes);
  for (size_t k = 0; i + k < n; ++k) {
    const double wide = x[i + k];
    sums[k] += wide * wide;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
HWY_EXPORT(update);
HWY_EXPORT(square_sums);

namespace {

bool is_adam(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

// The square sum of slices first … first + count − 1, along the tree.
double slices_square_sum(const ParameterSpace& space, std::span<const double> block_sums,
                         size_t first, size_t count) {
  if (count == 1) {
    const Slice& slice = space.slices()[first];
    return tree_sum(block_sums.subspan(slice.first_block, slice.block_count));
  }
  const size_t left = tree_split(count);
  return slices_square_sum(space, block_sums, first, left) +
         slices_square_sum(space, block_sums, first + left, count - left);
}

}  // namespace

UpdateSettings::UpdateSettings(const Optimizer& optimizer, double step_rate, uint64_t step)
    : kind(optimizer.kind),
      rate(static_cast<float>(step_rate)),
      momentum(static_cast<float>(optimizer.momentum)),
      beta1(static_cast<float>(optimizer.beta1)),
      beta1_rest(static_cast<float>(1 - optimizer.beta1)),
      beta2(static_cast<float>(optimizer.beta2)),
      beta2_rest(static_cast<float>(1 - optimizer.beta2)),
      epsilon(static_cast<float>(optimizer.epsilon)),
      decay_rate(kind == OptimizerKind::kAdamW ? step_rate : 1),
      clip_value(optimizer.clip_value ? static_cast<float>(*optimizer.clip_value)
                                      : std::numeric_limits<float>::max()) {
  const double t = static_cast<double>(step) + 1;
  adam_rate = static_cast<float>(step_rate / (1 - std::pow(optimizer.beta1, t)));
  adam_root = static_cast<float>(1 / std::sqrt(1 - std::pow(optimizer.beta2, t)));
  set_weight_decay(optimizer.weight_decay);
}

void UpdateSettings::set_weight_decay(double decay) {
  const bool decoupled = kind == OptimizerKind::kAdamW;
  weight_decay = decoupled ? 0 : static_cast<float>(decay_rate * decay);
  shrink = decoupled ? static_cast<float>(1 - decay_rate * decay) : 1;
}

int state_count(OptimizerKind kind) {
  if (kind == OptimizerKind::kSgd) return 0;
  return is_adam(kind) ? 2 : 1;
}

const char* state_name(OptimizerKind kind, int index) {
  if (!is_adam(kind)) return "velocity";
  return index == 0 ? "first_moment" : "second_moment";
}

bool update_block(const UpdateSettings& settings, const std::optional<double>& weight_decay,
                  std::span<const float* const> gradients, size_t n, float* weights,
                  float* const* states, const UpdateSharing& sharing) {
  UpdateSettings of_block = settings;
  if (weight_decay) of_block.set_weight_decay(*weight_decay);
  std::array<const float*, kTreeLeavesInRegisters> leaves;
  std::copy(gradients.begin(), gradients.end(), leaves.begin());
  order_leaves({leaves.data(), gradients.size()});
  const int count = state_count(settings.kind);
  return HWY_DYNAMIC_DISPATCH(update)(&of_block, leaves.data(), gradients.size(), n, weights,
                                      count > 0 ? states[0] : nullptr,
                                      count > 1 ? states[1] : nullptr, &sharing);
}

double block_square_sum(const float* gradient, size_t n) {
  std::array<double, 16> sums;
  HWY_DYNAMIC_DISPATCH(square_sums)(gradient, n, sums.data());
  return tree_sum(sums);
}

double global_norm(const ParameterSpace& space, std::span<const double> block_sums) {
  if (space.slices().empty()) return 0;
  return std::sqrt(slices_square_sum(space, block_sums, 0, space.slices().size()));
}

float clip_scale(double norm, double clip_norm) {
  // The small addend is PyTorch's, which this has to agree with.
  return static_cast<float>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

}  // namespace starling
#endif
