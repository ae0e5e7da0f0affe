// How a step is made of batches, a batch is cut into shards, and shards into stacks that are
// computed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling {

// More would be of no use: a shard is a unit of placement, and has some samples to compute.
inline constexpr size_t kMaxShards = 1024;

// First row of shard `shard` of `shards` for a batch of `n`.
constexpr int64_t shard_begin(int64_t n, int shard, int shards) { return shard * n / shards; }

// The samples of a step: batches of `batch` samples one after another, of which the last has what
// is left. Shard i of the step is shard i of each of its batches; they add up in this order, in
// place, as micro-batches do.
struct StepSize {
  int64_t samples = 0, batch = 0;

  // A step of one batch.
  static constexpr StepSize of_batch(int64_t samples) { return {samples, samples}; }

  constexpr int64_t batches() const { return batch > 0 ? (samples + batch - 1) / batch : 0; }
  constexpr int64_t batch_size(int64_t index) const {
    return std::min(batch, samples - index * batch);
  }
  // Whether the shard has a sample in any of the batches.
  constexpr bool has_rows(int shard, int shards) const {
    const auto in = [&](int64_t n) {
      return n > 0 && shard_begin(n, shard, shards) < shard_begin(n, shard + 1, shards);
    };
    return in(batch_size(0)) || in(batch_size(batches() - 1));
  }
  bool operator==(const StepSize&) const = default;
};

// Shards begin … end−1.
struct ShardRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

struct Stacking {
  StepSize step;
  int shards;  // of a batch
  int lanes;   // that take stacks as they come free
  int most;    // shards of a stack
};

// The stacks that make up `range`, in order, without empty shards. Each is a whole subtree of the
// tree over the shards that are not empty: one shard, or an aligned power of two of them. Of the
// sizes that keep the lanes equally busy, the largest: each stack has a gradient to be summed, and
// where shards are computed together, weights are read and it is written once. In a step of several
// batches a shard is a stack: what lanes join must not depend on them, and batches add up shard by
// shard.
std::vector<ShardRange> stack_shards(const Stacking& stacking, ShardRange range);

}  // namespace starling
