#include "engine/moments_layout.h"

#include <array>

#include "engine/shards.h"
#include "starling/error.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

struct Moments {
  double count = 0, mean = 0, m2 = 0;
};

// The moments of two disjoint sets together (Chan, Golub and LeVeque).
Moments together(const Moments& a, const Moments& b) {
  const double count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * (b.count / count),
          a.m2 + b.m2 + delta * delta * (a.count * b.count / count)};
}

}  // namespace

MomentsLayout::MomentsLayout(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!node.moments) continue;
    entries_.push_back({node.name, *node.moments, size_});
    size_ += 2 * static_cast<size_t>(node.moments->channels);
  }
}

const MomentsLayout::Entry& MomentsLayout::find(const std::string& layer) const {
  for (const Entry& entry : entries_) {
    if (entry.name == layer) return entry;
  }
  throw run_error("no statistics are kept for layer " + layer,
                  "this is a fault in Starling: please report it");
}

void MomentsLayout::initialize(std::span<float> statistics) const {
  for (const Entry& entry : entries_) {
    const size_t channels = static_cast<size_t>(entry.spec.channels);
    std::fill_n(statistics.begin() + static_cast<std::ptrdiff_t>(entry.offset), channels, 0.0f);
    std::fill_n(statistics.begin() + static_cast<std::ptrdiff_t>(entry.offset + channels), channels,
                1.0f);
  }
}

void MomentsLayout::merge(double* shard, int64_t rows_before, const double* more,
                          int64_t rows) const {
  for (const Entry& entry : entries_) {
    const size_t channels = static_cast<size_t>(entry.spec.channels);
    for (size_t mean = entry.offset; mean < entry.offset + channels; ++mean) {
      const auto count = [&](int64_t samples) {
        return static_cast<double>(samples * entry.spec.count_per_sample);
      };
      const Moments both = together({count(rows_before), shard[mean], shard[mean + channels]},
                                    {count(rows), more[mean], more[mean + channels]});
      shard[mean] = both.mean;
      shard[mean + channels] = both.m2;
    }
  }
}

void MomentsLayout::commit(std::span<const double* const> shards, std::span<const int64_t> rows,
                           std::span<float> statistics) const {
  std::array<Moments, kMaxShards> storage;  // no allocation in a step
  const std::span<Moments> parts(storage.data(), shards.size());
  for (const Entry& entry : entries_) {
    const size_t channels = static_cast<size_t>(entry.spec.channels);
    for (size_t c = 0; c < channels; ++c) {
      const size_t mean_at = entry.offset + c, variance_at = mean_at + channels;
      for (size_t i = 0; i < shards.size(); ++i) {
        parts[i] = {static_cast<double>(rows[i] * entry.spec.count_per_sample), shards[i][mean_at],
                    shards[i][variance_at]};
      }
      const Moments all = tree_reduce<Moments>(std::span<const Moments>(parts), together);
      // The running variance is the unbiased one, as in PyTorch; of one value it is taken as 0.
      const double variance = all.count > 1 ? all.m2 / (all.count - 1) : 0;
      const double momentum = entry.spec.momentum;
      float& running_mean = statistics[mean_at];
      float& running_variance = statistics[variance_at];
      running_mean = static_cast<float>((1 - momentum) * running_mean + momentum * all.mean);
      running_variance =
          static_cast<float>((1 - momentum) * running_variance + momentum * variance);
    }
  }
}

}  // namespace starling
