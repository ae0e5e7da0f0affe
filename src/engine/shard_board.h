// ShardBoard: what the shards of a batch give beside their gradients: which samples they had, sums
// of loss and metrics, moments, whether arithmetic left the finite numbers, and how long it took.
// One row of doubles per shard, on cache lines of its own, so that the rows can lie in memory that
// workers share: each writes those of its shards, and whoever has all of them gets the same totals,
// summed along the shard tree.
//
// The memory is the caller's or the board's own. Different rows may be written at the same time.
#pragma once

#include <span>
#include <vector>

#include "engine/moments_layout.h"
#include "engine/shards.h"
#include "tensor/buffer.h"

namespace starling {

// Sums over samples, added up in a fixed order.
struct Sums {
  int64_t samples = 0;
  double loss = 0;
  std::vector<double> metrics;

  Sums& operator+=(const Sums& other) {  // of the same metrics
    samples += other.samples;
    loss += other.loss;
    for (size_t m = 0; m < metrics.size(); ++m) metrics[m] += other.metrics[m];
    return *this;
  }
};

// A set of samples, by how many they are and what they are: in any order.
struct SampleHash {
  int64_t samples = 0;
  uint64_t sum = 0, exclusive_or = 0;

  void add(std::span<const uint64_t> ids);
  void add(const SampleHash& others);
  uint64_t digest() const;  // all of it in one number
  bool operator==(const SampleHash&) const = default;
};

class ShardBoard {
 public:
  // Columns of a row; moments follow the metrics. The hashes are integers, bit for bit.
  static constexpr size_t kSamples = 0, kSum = 1, kExclusiveOr = 2, kLoss = 3, kRaised = 4,
                          kSeconds = 5, kMetrics = 6;

  struct Layout {
    int shards = 1;
    size_t metrics = 0;
    size_t moments = 0;

    size_t row_doubles() const {
      return round_up(kMetrics + metrics + moments, kAlignment / sizeof(double));
    }
    size_t doubles() const { return static_cast<size_t>(shards) * row_doubles(); }
  };

  // `memory` has layout.doubles() zeroed doubles; null: the board has its own.
  explicit ShardBoard(const Layout& layout, double* memory = nullptr);

  void clear(int shard);
  // Adds rows first … first + count − 1 of what a plan of `rows` rows gave.
  void add(int shard, const float* losses, const float* metrics, int64_t rows, int64_t first,
           int64_t count);
  // These samples were computed in the shard.
  void add_samples(int shard, std::span<const uint64_t> ids);
  double* moments(int shard) { return row(shard) + kMetrics + layout_.metrics; }

  // Arithmetic overflowed or had no result (Lanes::raised) in this shard, or one computed with it.
  void raise(int shard) { row(shard)[kRaised] = 1; }
  bool raised() const;

  // What a worker took for its shards stands at the first of them.
  void set_seconds(int shard, double seconds) { row(shard)[kSeconds] = seconds; }
  double seconds(int shard) const { return row(shard)[kSeconds]; }

  int64_t samples(int shard) const { return static_cast<int64_t>(row(shard)[kSamples]); }
  // What the shard was computed from; and what all were.
  SampleHash sample_hash(int shard) const;
  SampleHash sample_hash() const;
  // The rows of a shard, to be moved between workers.
  std::span<double> rows(ShardRange shards);

  // Along the tree over the shards that have samples.
  const Sums& total();
  // Moves running statistics by the moments of all shards.
  void commit_moments(const MomentsLayout& moments, std::span<float> statistics) const;

  const Layout& layout() const { return layout_; }

 private:
  double* row(int shard) { return memory_ + static_cast<size_t>(shard) * layout_.row_doubles(); }
  const double* row(int shard) const {
    return memory_ + static_cast<size_t>(shard) * layout_.row_doubles();
  }
  double tree_of(size_t column);

  const Layout layout_;
  Buffer<double> own_;
  double* memory_;
  Sums total_;
  std::vector<double> present_;
};

}  // namespace starling
