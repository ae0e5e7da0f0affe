#include "collective/sum_into.h"

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collective/sum_into.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/tree_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <size_t kCount, class Store>
HWY_INLINE void sum_with(const float* const* parts, size_t n, Store&& store) {
  std::array<const float*, kCount> from;
  for (size_t k = 0; k < kCount; ++k) from[k] = parts[k];
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, tree_at<kCount>(d, from.data(), i), i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) store(one, tree_at<kCount>(one, from.data(), i), i);
}

template <size_t kCount>
void sum_into_count(const float* const* parts, size_t n, float* const* outs, size_t out_count) {
  if (out_count == 2) {  // the pointers stay in registers
    float *const a = outs[0], *const b = outs[1];
    return sum_with<kCount>(parts, n, [&](auto d, auto sum, size_t i) HWY_ATTR {
      hn::StoreU(sum, d, a + i);
      hn::StoreU(sum, d, b + i);
    });
  }
  sum_with<kCount>(parts, n, [&](auto d, auto sum, size_t i) HWY_ATTR {
    for (size_t k = 0; k < out_count; ++k) hn::StoreU(sum, d, outs[k] + i);
  });
}

void sum_into_any(const float* const* parts, size_t count, size_t n, float* const* outs,
                  size_t out_count) {
  with_leaves(count,
              [&](auto leaves) HWY_ATTR { sum_into_count<leaves()>(parts, n, outs, out_count); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
HWY_EXPORT(sum_into_any);

void sum_into(std::span<const float* const> parts, size_t n, std::span<float* const> outs) {
  HWY_DYNAMIC_DISPATCH(sum_into_any)(parts.data(), parts.size(), n, outs.data(), outs.size());
}

}  // namespace starling
#endif
