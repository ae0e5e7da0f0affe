// Collectives: a communicator. It starts collective operations of one world over one fabric, any
// number at a time, and brings them all forward while one is waited for.
//
// All ranks start the same operations in the same order with the same sizes and options; they may
// wait for them in any order. The memory given to an operation is the caller's and stays until its
// wait has returned.
//
// Every operation has a deadline. The first that fails, here or elsewhere, breaks the communicator:
// all that is pending and all that is started later fails with the same cause, and the other ranks
// are told, so that no survivor waits for one who has given up. Go on with a new communicator, in a
// later view of the fabric. One thread: the fabric's. Only wait() blocks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "collective/cost_model.h"
#include "collective/operation.h"
#include "collective/slices.h"

namespace starling {

struct CollectiveOptions {
  bool exact = true;  // sums keep the tree; else whatever is fastest
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of one operation
  size_t chunk_bytes = 256 << 10;                               // of one message
  size_t window = 4;       // messages under way per peer and partial
  size_t slice_unit = 16;  // floats: slices begin on multiples of it (4096 keeps blocks whole)
  uint8_t channel = 1;     // communicators of one fabric, and other users of it, have their own
  LinkCosts costs;         // what the choice of algorithm is made from
  // When it becomes true, all operations fail (kStaleView) as soon as progress() returns.
  const std::atomic<bool>* interrupt = nullptr;
};

class Collectives {
 public:
  // The fabric outlives it. Throws input_error when the placement is of another number of workers.
  Collectives(Fabric& fabric, std::shared_ptr<const Placement> placement,
              const CollectiveOptions& options = {});
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int rank() const { return fabric_.rank(); }
  int world() const { return fabric_.world(); }
  const Placement& placement() const { return *placement_; }
  const CollectiveOptions& options() const { return options_; }
  // Of operations that are started from now on; the same on all ranks.
  void set_placement(std::shared_ptr<const Placement> placement);
  void set_costs(const LinkCosts& costs) { options_.costs = costs; }
  // Measures the links (echo.h), and has all ranks choose by the same result from now on. All ranks
  // call it, with nothing under way. Blocks.
  Result<LinkCosts> measure_costs();

  // An operation that was started; it is waited for once.
  struct Handle {
    uint64_t number = 0;
  };

  // out = the sum over all partials of all ranks. `partials` are this rank's, in leaf order
  // (placement().partials(rank())), each as long as out, which may be one of them. The
  // algorithm is chosen (cost_model.h) unless given.
  Handle all_reduce(std::span<const float* const> partials, std::span<float> out,
                    std::optional<AllReduceAlgorithm> algorithm = {});
  // The same, but only this rank's slice (slice_of) of a sum of `length` floats.
  Handle reduce_scatter(std::span<const float* const> partials, size_t length,
                        std::span<float> slice);
  // The same with slices of any size: rank i's is from cuts[i] to cuts[i + 1].
  Handle reduce_scatter(std::span<const float* const> partials, std::vector<size_t> cuts,
                        std::span<float> slice);
  // Everybody's bytes in `all`, where the own already are; rank i's are from cuts[i] to cuts[i +
  // 1].
  Handle all_gather(std::span<std::byte> all, std::vector<size_t> cuts);
  // The floats of all slices, as reduce_scatter leaves them.
  Handle all_gather(std::span<float> all);
  Handle broadcast(int root, std::span<std::byte> bytes);
  // Everybody's bytes in the root's `all`; elsewhere `all` is not used.
  Handle gather(int root, std::span<const std::byte> own, std::span<std::byte> all,
                std::vector<size_t> cuts);
  // The bytes of the rank before this one; rank 0 has those of the last. A rank alone has none. In
  // a ring of some ranks the others have no part, but make the call.
  Handle shift(std::span<const std::byte> own, std::span<std::byte> before,
               std::span<const int> ring = {});
  Handle barrier();

  // The floats of a vector that are this rank's (or another's) in reduce_scatter.
  Span slice_of(size_t length, int rank) const;

  // Brings all forward without waiting.
  void advance();
  // Whether wait would return at once.
  bool is_over(Handle handle) const;
  // Waits until the operation is over. One that is not done by the deadline, or its own if that is
  // earlier, has failed.
  Status wait(Handle handle, Instant deadline = Instant::max());
  // The earliest deadline of what is pending: when to advance at the latest. For machines under
  // sim, which call fabric.progress with it and return.
  Instant next_deadline() const;

  // Why the communicator is broken; nothing while it is not.
  const std::optional<Failure>& failure() const { return broken_; }

 private:
  struct Entry {
    std::shared_ptr<const Placement> placement;
    std::vector<const float*> partials;
    std::unique_ptr<Operation> operation;
    Instant deadline{};
  };

  Channel next_channel();
  Entry entry(std::span<const float* const> partials) const;
  Handle start(Entry entry);
  void require_room(size_t size, size_t needed, const char* what) const;
  void settle(Entry& entry);
  void break_with(const Failure& failure);
  void tell_others();
  void hear_others();

  Fabric& fabric_;
  std::shared_ptr<const Placement> placement_;
  CollectiveOptions options_;
  uint64_t next_ = 1;
  std::map<uint64_t, Entry> entries_;
  std::optional<Failure> broken_;

  // Who gives up tells the others by one message each, on a tag of its own.
  Tag farewell_tag_;
  Ticket farewell_;
  std::vector<std::byte> heard_, said_;
  std::vector<Ticket> saying_;
};

}  // namespace starling
