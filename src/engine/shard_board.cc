#include "engine/shard_board.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/random.h"
#include "tensor/tree_sum.h"

namespace starling {

void SampleHash::add(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) {
    sum += mix64(id);
    exclusive_or ^= mix64(id);
  }
  samples += static_cast<int64_t>(ids.size());
}

void SampleHash::add(const SampleHash& others) {
  samples += others.samples;
  sum += others.sum;
  exclusive_or ^= others.exclusive_or;
}

uint64_t SampleHash::digest() const {
  return mix64(sum + mix64(exclusive_or + mix64(static_cast<uint64_t>(samples))));
}

ShardBoard::ShardBoard(const Layout& layout, double* memory)
    : layout_(layout),
      own_(memory == nullptr ? layout.doubles() : 0),
      memory_(memory == nullptr ? own_.data() : memory) {
  total_.metrics.resize(layout.metrics);
  present_.reserve(static_cast<size_t>(layout.shards));
}

void ShardBoard::clear(int shard) { std::fill_n(row(shard), layout_.row_doubles(), 0.0); }

void ShardBoard::add(int shard, const float* losses, const float* metrics, int64_t rows,
                     int64_t first, int64_t count) {
  double* const sums = row(shard);
  const auto sum = [&](const float* values, double& into) {
    for (int64_t i = first; i < first + count; ++i) into += double{values[i]};
  };
  sum(losses, sums[kLoss]);
  for (size_t m = 0; m < layout_.metrics; ++m)
    sum(metrics + static_cast<int64_t>(m) * rows, sums[kMetrics + m]);
}

void ShardBoard::add_samples(int shard, std::span<const uint64_t> ids) {
  double* const columns = row(shard);
  SampleHash hash = sample_hash(shard);
  hash.add(ids);
  columns[kSamples] = static_cast<double>(hash.samples);
  columns[kSum] = std::bit_cast<double>(hash.sum);
  columns[kExclusiveOr] = std::bit_cast<double>(hash.exclusive_or);
}

SampleHash ShardBoard::sample_hash(int shard) const {
  const double* const columns = row(shard);
  return {samples(shard), std::bit_cast<uint64_t>(columns[kSum]),
          std::bit_cast<uint64_t>(columns[kExclusiveOr])};
}

SampleHash ShardBoard::sample_hash() const {
  SampleHash all;
  for (int shard = 0; shard < layout_.shards; ++shard) all.add(sample_hash(shard));
  return all;
}

std::span<double> ShardBoard::rows(ShardRange shards) {
  return {row(shards.begin), static_cast<size_t>(shards.size()) * layout_.row_doubles()};
}

double ShardBoard::tree_of(size_t column) {
  present_.clear();
  for (int shard = 0; shard < layout_.shards; ++shard) {
    if (samples(shard) > 0) present_.push_back(row(shard)[column]);
  }
  return tree_sum(present_);
}

bool ShardBoard::raised() const {
  for (int shard = 0; shard < layout_.shards; ++shard) {
    if (row(shard)[kRaised] != 0) return true;
  }
  return false;
}

const Sums& ShardBoard::total() {
  total_.samples = 0;
  for (int shard = 0; shard < layout_.shards; ++shard) total_.samples += samples(shard);
  total_.loss = tree_of(kLoss);
  for (size_t m = 0; m < layout_.metrics; ++m) total_.metrics[m] = tree_of(kMetrics + m);
  return total_;
}

void ShardBoard::commit_moments(const MomentsLayout& moments, std::span<float> statistics) const {
  std::array<const double*, kMaxShards> at;  // no allocation in a step
  std::array<int64_t, kMaxShards> counts;
  size_t present = 0;
  for (int shard = 0; shard < layout_.shards; ++shard) {
    if (samples(shard) == 0) continue;
    at[present] = row(shard) + kMetrics + layout_.metrics;
    counts[present++] = samples(shard);
  }
  moments.commit({at.data(), present}, {counts.data(), present}, statistics);
}

}  // namespace starling
