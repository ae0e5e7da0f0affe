// How a batch is cut into shards, and shards into stacks that are computed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling {

// More would be of no use: a shard is a unit of placement, and has some samples to compute.
inline constexpr size_t kMaxShards = 1024;

// First row of shard `shard` of `shards` for a batch of `n`.
constexpr int64_t shard_begin(int64_t n, int shard, int shards) { return shard * n / shards; }

// Shards begin … end−1.
struct ShardRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

struct Stacking {
  int64_t samples;       // of the batch
  int shards;            // of the batch
  int lanes;             // that take stacks as they come free
  int64_t stacked_rows;  // that a stack of several shards may have; 0: a shard is a stack
};

// The stacks that make up `range`, in order, without empty shards. Each is a whole subtree of the
// tree over the shards that are not empty: one shard, or an aligned power of two of them. Of the
// sizes that keep the lanes equally busy, the largest: weights are read, and a gradient is written,
// once for each stack.
std::vector<ShardRange> stack_shards(const Stacking& stacking, ShardRange range);

}  // namespace starling
