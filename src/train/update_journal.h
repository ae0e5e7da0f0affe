// UpdateJournal: lets others finish an update of shared state that a dead worker has begun. Every
// block has the number of its last update; while a block is being written, a slot of the writer
// holds what it was before. A process may die between any two stores: its stores are seen in the
// order in which it made them, so a block is old, new, or torn with its old content in a slot.
//
// The memory is shared by all workers. Each lane of each worker has a slot of its own; lanes may
// write different blocks at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "strategy/strategy.h"
#include "tensor/parameter_space.h"

namespace starling {

class UpdateJournal {
 public:
  // What an update changes: arrays over the parameter space, and the running statistics, which
  // count as one more block.
  struct State {
    const ParameterSpace* space;
    std::vector<float*> arrays;
    std::span<float> statistics;
  };

  static size_t bytes(const ParameterSpace& space, size_t arrays, size_t statistics, size_t slots);

  // The memory is zero at first; all that is given outlives this.
  UpdateJournal(const State& state, std::span<std::byte> memory, size_t slots);

  size_t statistics_block() const { return blocks_; }
  bool is_done(size_t block, uint64_t update) const {
    return versions_[block].load(std::memory_order_acquire) == update;
  }
  // Around the writing of a block, by the owner of the slot. Updates are numbered from 1.
  void begin(size_t slot, size_t block, uint64_t update);
  void end(size_t block, uint64_t update) {
    versions_[block].store(update, std::memory_order_release);
  }
  // Gives the torn ones of these blocks their old content back. Nobody may write meanwhile, but
  // for others who restore other blocks.
  void restore(BlockRange blocks, uint64_t update);

 private:
  struct Slot {
    std::atomic<uint64_t> update;
    std::atomic<uint64_t> block;
  };

  template <typename Copy>
  void for_parts(size_t slot, size_t block, Copy copy) const;
  Slot& slot(size_t index) const;

  const State state_;
  const size_t blocks_, slots_, slot_bytes_;
  std::atomic<uint64_t>* const versions_;
  std::byte* const slots_begin_;
};

}  // namespace starling
