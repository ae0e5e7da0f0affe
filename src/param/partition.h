// Partition: how the samples of a stretch are divided between the workers of the parameter service,
// and how many make a worker's next gradient.
//
//   dynamic   one queue for all: who is ready is lent the next. Where others may wait for a slow
//             worker, leases follow the measured speed, so that all gradients take about as long;
//             else they are of one size, as each costs an update.
//   equal     as many samples for each, in leases of one size. Who has used its share rests.
//   weighted  shares by the speed that was measured before, in leases that follow it too.
//
// It counts samples; which ones they are is the queue's. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "param/speeds.h"

namespace starling {

enum class PartitionKind : uint8_t { kDynamic, kEqual, kWeighted };

// Throws Error with all names for another.
PartitionKind partition_from_name(const std::string& name);

struct PartitionOptions {
  PartitionKind kind = PartitionKind::kDynamic;
  std::vector<int> workers;  // by name
  uint64_t samples = 0;      // to be divided
  uint64_t batch = 1;        // samples of a round
  size_t spare = 0;          // gradients that a round does not wait for
  uint64_t tasks = 0;        // what a round is cut into; 0: gradients that it waits for
  bool waits = true;         // others may wait for a gradient that takes long
};

class Partition {
 public:
  Partition(const PartitionOptions& options, Speeds speeds);

  // About how many samples the worker is to be lent next; 0: it has used its share. By speed it
  // stays as it was for as long as that is about right: every size is compiled once.
  uint64_t lease(int worker) const;
  // At most.
  uint64_t most(int worker) const;
  // Whether no worker ever rests while there are samples.
  bool is_common() const { return shares_.empty(); }

  void lend(int worker, uint64_t samples);
  // It was lent them, and they were not used.
  void give_back(int worker, uint64_t samples);
  // In samples per second; 0 when nothing is known.
  double speed(int worker) const { return speeds_.of(worker); }
  // A gradient of so many took the worker so long.
  void took(int worker, uint64_t samples, double seconds);

 private:
  // Of those that still have samples; one, if nobody is waited for.
  size_t waited_for(size_t workers) const;
  uint64_t parts_of_round() const;  // of one size
  bool follows_speed() const {
    return options_.kind == PartitionKind::kWeighted ||
           (options_.kind == PartitionKind::kDynamic && options_.waits);
  }
  uint64_t lease_by_speed(int worker) const;

  const PartitionOptions options_;
  Speeds speeds_;
  std::map<int, uint64_t> sizes_;   // of the last leases by speed
  std::map<int, uint64_t> shares_;  // what is left of them; empty: there is one queue
};

// `total` in whole parts proportional to these figures, which are above 0.
std::vector<uint64_t> whole_parts(uint64_t total, const std::vector<double>& figures);

}  // namespace starling
