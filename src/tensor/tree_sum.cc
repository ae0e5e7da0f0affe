#include "tensor/tree_sum.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/tree_sum.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/tree_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Larger ones go by chunks of this many floats, whose partial sums stay in L1.
constexpr size_t kChunk = 512;

template <size_t kCount>
void sum_in_registers(const float* const* shards, size_t begin, size_t n, float* dst) {
  // A copy that no store can alias, so that the pointers stay in registers too.
  std::array<const float*, kCount> from;
  for (size_t k = 0; k < kCount; ++k) from[k] = shards[k] + begin;
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(tree_at<kCount>(d, from.data(), i), d, dst + i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) hn::StoreU(tree_at<kCount>(one, from.data(), i), one, dst + i);
}

// dst[0 … n) = the sums at begin … begin + n.
void sum_chunk(const float* const* shards, size_t count, size_t begin, size_t n, float* dst) {
  if (count <= kTreeLeavesInRegisters) {
    return with_leaves(
        count, [&](auto leaves) HWY_ATTR { sum_in_registers<leaves()>(shards, begin, n, dst); });
  }
  HWY_ALIGN float right[kChunk];
  const size_t left = tree_split(count);
  sum_chunk(shards, left, begin, n, dst);
  sum_chunk(shards + left, count - left, begin, n, right);
  const std::array<const float*, 2> halves = {dst, right};
  sum_in_registers<2>(halves.data(), 0, n, dst);
}

void sum_shards(const float* const* shards, size_t count, size_t n, float* dst) {
  if (count <= kTreeLeavesInRegisters) return sum_chunk(shards, count, 0, n, dst);
  for (size_t begin = 0; begin < n; begin += kChunk) {
    sum_chunk(shards, count, begin, std::min(kChunk, n - begin), dst + begin);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
HWY_EXPORT(sum_shards);

namespace {

double sum_values(std::span<const double> values) {
  if (values.empty()) return 0;
  return tree_reduce<double>(values, [](double a, double b) { return a + b; });
}

}  // namespace

#ifdef STARLING_SWAPPED_TREE

namespace {

std::atomic<bool> swapped_tree_active{false};

template <class T>
void swap_leaves(std::span<T> leaves) {
  if (swapped_tree_active && leaves.size() >= 3) std::swap(leaves[1], leaves[2]);
}

}  // namespace

void set_swapped_tree(bool on) { swapped_tree_active = on; }

void order_leaves(std::span<const float*> leaves) { swap_leaves(leaves); }

double tree_sum(std::span<const double> values) {
  std::vector<double> leaves(values.begin(), values.end());
  swap_leaves(std::span(leaves));
  return sum_values(leaves);
}

void tree_sum(std::span<const float* const> shards, size_t n, float* dst) {
  std::vector<const float*> leaves(shards.begin(), shards.end());
  order_leaves(leaves);
  HWY_DYNAMIC_DISPATCH(sum_shards)(leaves.data(), leaves.size(), n, dst);
}

#else

void order_leaves(std::span<const float*>) {}

double tree_sum(std::span<const double> values) { return sum_values(values); }

void tree_sum(std::span<const float* const> shards, size_t n, float* dst) {
  HWY_DYNAMIC_DISPATCH(sum_shards)(shards.data(), shards.size(), n, dst);
}

#endif

}  // namespace starling
#endif
