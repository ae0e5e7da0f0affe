// How a batch is cut into shards.
#pragma once

#include <cstddef>
#include <cstdint>

namespace starling {

// More would be of no use: a shard is a unit of placement, and has some samples to compute.
inline constexpr size_t kMaxShards = 1024;

// First row of shard `shard` of `shards` for a batch of `n`.
constexpr int64_t shard_begin(int64_t n, int shard, int shards) { return shard * n / shards; }

}  // namespace starling
