// Loader: the batches of an epoch, in an order that depends only on (size, seed, epoch). A data set
// that is cheap to read is left to the lanes: batches then carry sample numbers only. For any other
// one a thread of its own reads `prefetch` batches ahead into memory that is allocated once; of
// each, all rows or those that this worker computes.
//
// One thread at a time uses a Loader. next() blocks until the batch has been read; what a read
// throws comes out of next() at the batch it belongs to, and start_epoch() begins anew. The
// destructor waits for the read that is under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/random.h"
#include "starling/data.h"
#include "tensor/buffer.h"

namespace starling::data {

// Rows begin … end−1 of a batch.
struct RowRange {
  uint64_t begin = 0, end = 0;
};

struct Batch {
  uint64_t step_in_epoch = 0;
  std::span<const uint64_t> ids;    // the samples, in order
  const float* features = nullptr;  // of all rows; null when the data set is cheap()
  const float* labels = nullptr;
};

class Loader {
 public:
  struct Options {
    uint64_t batch = 64;
    uint64_t seed = 0;
    bool shuffle = true;
    int prefetch = 2;        // batches read ahead of the one in use; at least 1
    bool drop_last = false;  // leave out the last batch when it is short
    // Which rows of a batch of so many are read; what the others hold is not said. Called by the
    // loader's thread. Empty: all.
    std::function<RowRange(uint64_t rows)> needed = {};
  };

  // Throws Error when the batch is zero, or an epoch would have no batch.
  Loader(Dataset dataset, const Options& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  uint64_t steps_per_epoch() const { return steps_; }

  // Makes next() give the batches of `epoch` from `first_step` on; those that were read ahead
  // are dropped. Throws Error when first_step is beyond the epoch.
  void start_epoch(uint32_t epoch, uint64_t first_step = 0);

  // The next batch, valid until the next call of next() or start_epoch(). Throws Error after the
  // last one.
  const Batch& next();

 private:
  // One batch in memory. The thread owns it while it fills it, the caller while it is in use.
  struct Slot {
    std::vector<uint64_t> ids;
    Buffer<float> features, labels;
    std::exception_ptr error;
  };

  void read_ahead();
  void read(std::span<const uint64_t> ids, Slot& target) const;
  std::span<const uint64_t> fill_ids(uint64_t step, const std::optional<Permutation>& order,
                                     std::vector<uint64_t>& ids) const;
  Slot& slot(uint64_t step) { return slots_[step % slots_.size()]; }

  const Dataset dataset_;
  const Options options_;
  const bool cheap_;
  uint64_t steps_ = 0;
  std::vector<Slot> slots_;
  Batch current_;
  uint64_t next_step_ = 0;  // what next() gives; steps_ before the first epoch

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Permutation> order_;  // none: as numbered
  uint64_t run_ = 0;                  // counts start_epoch(): what an older run read is dropped
  uint64_t oldest_ = 0;               // the first step whose slot is not free
  uint64_t filled_ = 0;               // steps before this one have been read
  bool failed_ = false;               // a read has thrown: the thread waits for a new run
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace starling::data
