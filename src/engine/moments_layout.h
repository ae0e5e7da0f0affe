// Where the statistics of normalisation layers lie: running mean and variance in one float array
// of the job (saved in checkpoints), and each shard's own mean and sum of squared deviations in
// one double array per shard. Shards are merged by the fixed tree, once per step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace starling {

class MomentsLayout {
 public:
  struct Entry {
    std::string name;  // the layer's
    MomentsSpec spec;
    size_t offset;  // of the mean in both arrays; variance (or M2) is at offset + channels
  };

  explicit MomentsLayout(const Graph& graph);

  std::span<const Entry> entries() const { return entries_; }
  const Entry& find(const std::string& layer) const;
  size_t size() const { return size_; }  // elements of either array

  // Running means are 0 and variances 1 at the start.
  void initialize(std::span<float> statistics) const;

  // Moments of `rows` samples more join those of the `rows_before` samples that a shard has.
  void merge(double* shard, int64_t rows_before, const double* more, int64_t rows) const;

  // Merges the shards' moments by the fixed tree and moves the running statistics towards them.
  // `rows[i]` is the number of samples of shard i; empty shards are left out by the caller.
  void commit(std::span<const double* const> shards, std::span<const int64_t> rows,
              std::span<float> statistics) const;

 private:
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace starling
