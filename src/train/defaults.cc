// Shards and micro-batch when the job says nothing. Both are part of the job's numbers, so they
// are pure functions of the job: never of the machine, its lanes or its timing.
#include <algorithm>
#include <bit>

#include "graph/graph.h"
#include "starling/trainer.h"

namespace starling {

int default_shards(uint64_t batch, int64_t parameters) {
  // A shard costs one write and one read of the gradient. Up to 64 Ki parameters that stays in the
  // caches, and shards are cheap; beyond, a shard should have at least 32 samples to pay for it.
  constexpr int64_t kCheapParameters = 64 * 1024;
  constexpr uint64_t kMost = 16, kCheapMost = 8, kSamplesEach = 32;
  const uint64_t wanted = parameters <= kCheapParameters
                              ? std::min(batch, kCheapMost)
                              : std::clamp<uint64_t>(batch / kSamplesEach, 2, kMost);
  return static_cast<int>(std::bit_floor(std::max<uint64_t>(1, std::min(wanted, batch))));
}

int64_t default_micro_batch(const Model& model) {
  // Activations of a micro-batch should stay near a core: two megabytes of values, of which fused
  // kernels keep a part. But every micro-batch reads the weights and adds to the gradient, so it
  // should have enough rows for that to be the smaller part of its work.
  constexpr int64_t kCacheFloats = 512 * 1024, kMost = 256;
  int64_t activations = model.input_shape().elements();
  for (const Node& node : model.graph().nodes())
    activations += model.graph().value(node.output).shape.elements();
  const int64_t by_cache = std::max<int64_t>(1, kCacheFloats / activations);
  const int64_t by_weights = 4 * model.parameter_count() / activations;
  return static_cast<int64_t>(std::bit_floor(
      static_cast<uint64_t>(std::clamp(std::max(by_cache, by_weights), int64_t{1}, kMost))));
}

}  // namespace starling
