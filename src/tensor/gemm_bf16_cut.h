// How products of bf16 are cut (gemm_bf16.h), whatever multiplies them. A tile is 16 lines (rows of
// a, or columns of b) by 32 of k, packed: 16 vectors of 16 pairs along k.
#pragma once

#include <algorithm>

#include "tensor/gemm.h"

namespace starling::bf16 {

inline constexpr int64_t kLines = 16;        // of a tile
inline constexpr int64_t kTileDepth = 32;    // of k
inline constexpr int64_t kTileFloats = 256;  // 1 KiB, packed or sums
inline constexpr int64_t kBlock = 256;       // rows and columns that are multiplied at a time
inline constexpr int kMaxLevels = 10;        // of the tree of shards along k

constexpr int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Along k. A shard begins with a tile of its own.
struct Cut {
  int64_t shards, shard_depth, shard_tiles;
  explicit Cut(const GemmShape& s)
      : shards(s.depth_shards),
        shard_depth(s.k / s.depth_shards),
        shard_tiles(parts_of(shard_depth, kTileDepth)) {}
  int64_t tiles() const { return shards * shard_tiles; }
};

// Floats of `lines` lines of `tiles` tiles, packed.
constexpr int64_t packed_floats(int64_t lines, int64_t tiles) {
  return parts_of(lines, kLines) * tiles * kTileFloats;
}

// An operand: lines along k.
struct Lines {
  const float* data;
  int64_t line_stride, k_stride;  // one of them is 1
  int64_t count;
};

}  // namespace starling::bf16
