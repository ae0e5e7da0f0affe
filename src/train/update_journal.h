// UpdateJournal: lets others finish an update of shared state that a dead worker has begun. Every
// block has the number of its last update. While a block is being written, a slot of the writer
// says how far it is, and holds what the few elements under way were before (UndoLog). A process
// may die between any two stores: its stores are seen in the order in which it made them, so an
// element is old, new, or under way with its old value in a slot.
//
// The memory is shared by all workers. Each lane of each worker has a slot of its own; lanes may
// write different blocks at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/update.h"
#include "strategy/strategy.h"
#include "tensor/parameter_space.h"

namespace starling {

class UpdateJournal {
 public:
  // What an update changes: arrays over the parameter space, weights first, and the running
  // statistics, which count as one more block.
  struct State {
    const ParameterSpace* space;
    std::vector<float*> arrays;
    std::span<float> statistics;
  };

  static size_t bytes(const ParameterSpace& space, size_t statistics, size_t slots);

  // The memory is zero at first; all that is given outlives this.
  UpdateJournal(const State& state, std::span<std::byte> memory, size_t slots);

  size_t statistics_block() const { return blocks_; }
  bool is_done(size_t block, uint64_t update) const {
    return versions_[block].load(std::memory_order_acquire) == update;
  }
  // Around the writing of a block from its element `first` on, by the owner of the slot, who keeps
  // what it overwrites in the log; the statistics are kept already. Updates are numbered from 1.
  UndoLog begin(size_t slot, size_t block, uint64_t update, size_t first = 0);
  void end(size_t block, uint64_t update) {
    versions_[block].store(update, std::memory_order_release);
  }
  // The state is that after this update now, all of it, by other means. Nobody writes meanwhile,
  // but for others who do the same.
  void reset(uint64_t update);
  // Gives elements of these blocks that were under way their old values back. Nobody may write
  // meanwhile, but for others who restore other blocks.
  void restore(BlockRange blocks, uint64_t update);
  // How many elements of a block that is not done are updated, after restore().
  size_t progress(size_t block, uint64_t update) const;

 private:
  struct Slot {
    std::atomic<uint64_t> update;
    std::atomic<uint64_t> block;
    std::atomic<uint64_t> under_way;
  };

  Slot& slot(size_t index) const;
  float* log(size_t slot) const;
  bool is_at(const Slot& slot, size_t block, uint64_t update) const;

  const State state_;
  const size_t blocks_, slots_, slot_bytes_;
  std::atomic<uint64_t>* const versions_;
  std::byte* const slots_begin_;
};

}  // namespace starling
