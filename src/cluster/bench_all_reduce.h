// bench_all_reduce: how fast the workers of a world sum what each of them has, measured by the
// workers themselves, for `starling bench all-reduce`. Beside each figure stands the bare sum of
// the same run: the same additions in shared memory, each worker its share, stored to all arrays,
// with nothing around them but two counters. What lies between the two is our overhead.
//
// All workers call it with the same options; each waits for the others at most World::timeout().
// A lost worker is an Error, as is a sum that is wrong.
#pragma once

#include <string>
#include <vector>

#include "cluster/world.h"

namespace starling {

struct BenchAllReduceOptions {
  std::vector<size_t> sizes;  // bytes; multiples of 4
  int repeats = 11;           // samples of each size, of which the median counts
};

struct BenchAllReduceRow {
  size_t bytes = 0;
  std::string algorithm;
  double seconds = 0;       // of one all-reduce: the median over the samples
  double bare_seconds = 0;  // of one bare sum; 0 where workers share no memory
};

// One row per size, the chief's times. Requires at least two workers.
std::vector<BenchAllReduceRow> bench_all_reduce(World& world, const BenchAllReduceOptions& options);

}  // namespace starling
