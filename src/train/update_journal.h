// UpdateJournal: lets others finish an update of shared state that a dead worker has begun. Every
// piece of a block has the number of its last update; while a piece is being written, a slot of the
// writer holds what it was before, of as much of it as may have been written (UndoLog). A process
// may die between any two stores: its stores are seen in the order in which it made them, so a
// piece is old, new, or torn with its old content in a slot. Pieces are small so that the slot
// stays in the nearest cache.
//
// The memory is shared by all workers. Each lane of each worker has a slot of its own; lanes may
// write different pieces at the same time.
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
  static constexpr size_t kPieceElements = 1024;
  static constexpr size_t kPieces = kBlockElements / kPieceElements;  // of a block, at most

  // What an update changes: arrays over the parameter space, and the running statistics, which
  // count as one more block, of one piece.
  struct State {
    const ParameterSpace* space;
    std::vector<float*> arrays;
    std::span<float> statistics;
  };

  static size_t bytes(const ParameterSpace& space, size_t arrays, size_t statistics, size_t slots);

  // The memory is zero at first; all that is given outlives this.
  UpdateJournal(const State& state, std::span<std::byte> memory, size_t slots);

  size_t statistics_block() const { return blocks_; }
  // Pieces are numbered through: the first of a block, and the one behind its last.
  size_t first_piece(size_t block) const { return block * kPieces; }
  size_t end_piece(size_t block) const;
  bool is_done(size_t piece, uint64_t update) const {
    return versions_[piece].load(std::memory_order_acquire) == update;
  }
  // Around the writing of a piece, by the owner of the slot, who keeps what it overwrites in the
  // log; the statistics are kept already. Updates are numbered from 1.
  UndoLog begin(size_t slot, size_t piece, uint64_t update);
  void end(size_t piece, uint64_t update) {
    versions_[piece].store(update, std::memory_order_release);
  }
  // The state is that after this update now, all of it, by other means. Nobody writes meanwhile,
  // but for others who do the same.
  void reset(uint64_t update);
  // Gives the torn ones of these blocks their old content back. Nobody may write meanwhile, but
  // for others who restore other blocks.
  void restore(BlockRange blocks, uint64_t update);

 private:
  struct Slot {
    std::atomic<uint64_t> update;
    std::atomic<uint64_t> piece;
    std::atomic<uint64_t> kept;  // elements of each array
  };

  Slot& slot(size_t index) const;
  float* kept_floats(size_t slot) const;

  const State state_;
  const size_t blocks_, slots_, slot_bytes_;
  std::atomic<uint64_t>* const versions_;
  std::byte* const slots_begin_;
};

}  // namespace starling
