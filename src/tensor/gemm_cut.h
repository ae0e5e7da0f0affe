// How products of f32 are cut along k (gemm.h), whatever multiplies them: the order of sums, and so
// their bits.
#pragma once

#include <algorithm>

#include "tensor/gemm.h"

namespace starling {

inline constexpr int kGemmLevels = 10;  // of the tree of shards along k

// `count` in as few parts of at most `most` as there can be, of equal size give or take one: a
// short one at the end would cost nearly as much as a whole one.
constexpr int64_t equal_part(int64_t count, int64_t most) {
  const int64_t parts = (count + most - 1) / most;
  return parts == 0 ? 0 : (count + parts - 1) / parts;
}

// The same, part by part.
struct EqualParts {
  constexpr EqualParts(int64_t all, int64_t most)
      : count((all + most - 1) / most),
        least(count > 0 ? all / count : 0),
        longer(all - least * count) {}
  constexpr int64_t size(int64_t part) const { return least + (part < longer); }

  int64_t count;
  int64_t least;   // of a part
  int64_t longer;  // how many parts have one more
};

constexpr int64_t round_up_to(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// What is multiplied at a time: `shards` stretches of `depth` along k, one after another, whose
// sums are joined along the tree.
struct Depth {
  int64_t depth;
  int64_t shards;
  constexpr int64_t total() const { return depth * shards; }
};

// The longest of a product's blocks along k. All begin where a cache line may.
constexpr Depth block_depth(const GemmShape& s) {
  if (s.depth_shards > 1) return {s.k / s.depth_shards, s.depth_shards};
  const int64_t depth = equal_part(s.k, kGemmShardDepth);
  return {depth < s.k ? round_up_to(depth, 16) : depth, 1};
}
static_assert(kGemmShardDepth % 16 == 0);

// Block after block along k, each added to those before: multiply(depth, a, b, add), with the
// block's part of a and b.
template <class Multiply>
void for_blocks(const GemmShape& s, const MatrixView& a, const MatrixView& b, bool accumulate,
                const Multiply& multiply) {
  const Depth most = block_depth(s);
  for (int64_t k = 0; k < s.k; k += most.total()) {
    multiply(Depth{std::min(most.depth, s.k - k), most.shards},
             MatrixView{a.data + k * a.column_stride, a.row_stride, a.column_stride},
             MatrixView{b.data + k * b.row_stride, b.row_stride, b.column_stride},
             accumulate || k > 0);
  }
}

}  // namespace starling
