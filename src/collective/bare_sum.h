// BareSum: the yardstick of SharedAllReduce, for benchmarks. The same additions, each rank its
// share, stored to the arrays of all, with the least around them that makes the sum right: a
// counter per rank, spun on, and no sleep.
//
// A rank that is gone, or the deadline, ends the wait all the same. One thread per rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "collective/placement.h"
#include "fabric/shm/roster.h"

namespace starling {

class BareSum {
 public:
  // Of shared memory, zero at first, aligned to 64 bytes.
  static size_t bytes(int world) { return static_cast<size_t>(world) * sizeof(Line); }

  // All outlive it. The placement has one partial per rank.
  BareSum(Roster& roster, std::span<std::byte> memory, const Placement& placement);

  // arrays[r][i] = the sum over all arrays at i, for all r and i < length. Blocks.
  Status run(std::span<float* const> arrays, size_t length, Instant deadline);

 private:
  struct Line {
    alignas(64) std::atomic<uint64_t> count;
  };
  Status meet(Instant deadline);

  Roster& roster_;
  Line* const lines_;
  const Placement& placement_;
  uint64_t count_ = 0;
  std::vector<const float*> parts_;
  std::vector<float*> outs_;
};

}  // namespace starling
