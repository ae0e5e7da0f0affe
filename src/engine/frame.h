// Where the memory of a running plan is. Kernels are compiled once and hold Refs; what changes
// from micro-batch to micro-batch (the lane's arena, the input rows, the shard's gradient) is in
// the Frame that each run gets. A Ref into the arena points to its ArenaBuffer, whose place is
// decided after all kernels are known.
#pragma once

#include <array>
#include <cstddef>

#include "starling/operator.h"

namespace starling {

enum class Space {
  kNone,
  kArena,
  kFeatures,
  kLabels,
  kWeights,
  kGradients,
  kGradOutput,
  kLate,  // the operands of late gradients (late_layout.h)
  kFixed
};
inline constexpr size_t kSpaceCount = 9;

// A stretch of the arena that is live from kernel `first` to kernel `last`.
struct ArenaBuffer {
  size_t floats = 0;
  int first = -1;
  int last = -1;
  size_t offset = 0;  // in floats; set by place_buffers
};

struct Frame {
  std::array<float*, kSpaceCount> base{};
  RowsContext context;
  int64_t first_sample = 0;           // of these rows, in the batch
  float loss_scale = 1;               // 1 / (samples of the whole batch)
  bool accumulate = false;            // the shard's gradient holds earlier micro-batches
  float* losses = nullptr;            // one per row
  float* metrics = nullptr;           // metric by metric, one per row
  double* moments = nullptr;          // of this shard, by MomentsLayout
  const float* statistics = nullptr;  // running ones, by MomentsLayout
};

struct Ref {
  Space space = Space::kNone;
  size_t offset = 0;                    // in floats
  const ArenaBuffer* buffer = nullptr;  // kArena
  float* fixed = nullptr;               // kFixed

  explicit operator bool() const { return space != Space::kNone; }
  float* in(const Frame& frame) const {
    if (space == Space::kFixed) return fixed;
    float* base = frame.base[static_cast<size_t>(space)];
    return base + offset + (buffer != nullptr ? buffer->offset : 0);
  }
};

}  // namespace starling
