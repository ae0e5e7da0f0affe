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

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Trees up to this size are summed in registers, in one pass.
constexpr size_t kRegisterLeaves = 8;
// Larger ones go by chunks of this many floats, whose partial sums stay in L1.
constexpr size_t kChunk = 512;

template <size_t kCount, class D>
HWY_INLINE hn::Vec<D> tree_at(D d, const float* const* shards, size_t i) {
  if constexpr (kCount == 1) {
    return hn::LoadU(d, shards[0] + i);
  } else {
    constexpr size_t kLeft = tree_split(kCount);
    return hn::Add(tree_at<kLeft>(d, shards, i), tree_at<kCount - kLeft>(d, shards + kLeft, i));
  }
}

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
  switch (count) {
    case 1:
      return sum_in_registers<1>(shards, begin, n, dst);
    case 2:
      return sum_in_registers<2>(shards, begin, n, dst);
    case 3:
      return sum_in_registers<3>(shards, begin, n, dst);
    case 4:
      return sum_in_registers<4>(shards, begin, n, dst);
    case 5:
      return sum_in_registers<5>(shards, begin, n, dst);
    case 6:
      return sum_in_registers<6>(shards, begin, n, dst);
    case 7:
      return sum_in_registers<7>(shards, begin, n, dst);
    case 8:
      return sum_in_registers<8>(shards, begin, n, dst);
  }
  HWY_ALIGN float right[kChunk];
  const size_t left = tree_split(count);
  sum_chunk(shards, left, begin, n, dst);
  sum_chunk(shards + left, count - left, begin, n, right);
  const std::array<const float*, 2> halves = {dst, right};
  sum_in_registers<2>(halves.data(), 0, n, dst);
}

void sum_shards(const float* const* shards, size_t count, size_t n, float* dst) {
  if (count <= kRegisterLeaves) return sum_chunk(shards, count, 0, n, dst);
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
std::vector<T> swap_leaves(std::span<const T> leaves) {
  std::vector<T> result(leaves.begin(), leaves.end());
  if (swapped_tree_active && result.size() >= 3) std::swap(result[1], result[2]);
  return result;
}

}  // namespace

void set_swapped_tree(bool on) { swapped_tree_active = on; }

double tree_sum(std::span<const double> values) { return sum_values(swap_leaves(values)); }

void tree_sum(std::span<const float* const> shards, size_t n, float* dst) {
  const std::vector<const float*> leaves = swap_leaves(shards);
  HWY_DYNAMIC_DISPATCH(sum_shards)(leaves.data(), leaves.size(), n, dst);
}

#else

double tree_sum(std::span<const double> values) { return sum_values(values); }

void tree_sum(std::span<const float* const> shards, size_t n, float* dst) {
  HWY_DYNAMIC_DISPATCH(sum_shards)(shards.data(), shards.size(), n, dst);
}

#endif

}  // namespace starling
#endif
