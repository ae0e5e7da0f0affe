// The tree of tree_sum.h over vectors in registers. Include after hwy/highway.h, inside a file that
// is compiled through hwy/foreach_target.h.
#if defined(STARLING_TENSOR_TREE_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_TENSOR_TREE_SUM_INL_H_
#undef STARLING_TENSOR_TREE_SUM_INL_H_
#else
#define STARLING_TENSOR_TREE_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "tensor/tree_sum.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// The sum of the leaves at element i.
template <size_t kCount, class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> tree_at(D d, const float* const* leaves, size_t i) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (kCount == 1) {
    return hn::LoadU(d, leaves[0] + i);
  } else {
    constexpr size_t kLeft = tree_split(kCount);
    return hn::Add(tree_at<kLeft>(d, leaves, i), tree_at<kCount - kLeft>(d, leaves + kLeft, i));
  }
}

// use(std::integral_constant<size_t, count>()); requires 1 to kTreeLeavesInRegisters leaves.
template <class Use>
HWY_INLINE auto with_leaves(size_t count, Use&& use) {
  switch (count) {
    case 1:
      return use(std::integral_constant<size_t, 1>());
    case 2:
      return use(std::integral_constant<size_t, 2>());
    case 3:
      return use(std::integral_constant<size_t, 3>());
    case 4:
      return use(std::integral_constant<size_t, 4>());
    case 5:
      return use(std::integral_constant<size_t, 5>());
    case 6:
      return use(std::integral_constant<size_t, 6>());
    case 7:
      return use(std::integral_constant<size_t, 7>());
    default:
      static_assert(kTreeLeavesInRegisters == 8);
      return use(std::integral_constant<size_t, 8>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#endif
