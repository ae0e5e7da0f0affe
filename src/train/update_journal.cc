#include "train/update_journal.h"

#include <algorithm>
#include <stdexcept>

#include "base/store_order.h"
#include "tensor/buffer.h"

namespace starling {
namespace {

constexpr size_t kLine = 64, kPage = 4096;
constexpr uint64_t kNone = UINT64_MAX;  // no piece

size_t versions_bytes(size_t blocks) {
  return round_up((blocks * UpdateJournal::kPieces + 1) * sizeof(uint64_t), kPage);
}

size_t bytes_of_slot(size_t arrays, size_t statistics) {
  const size_t floats = std::max(arrays * UpdateJournal::kPieceElements, statistics);
  return kLine + round_up(floats * sizeof(float), kPage);
}

}  // namespace

size_t UpdateJournal::bytes(const ParameterSpace& space, size_t arrays, size_t statistics,
                            size_t slots) {
  return versions_bytes(space.blocks().size()) + slots * bytes_of_slot(arrays, statistics);
}

UpdateJournal::UpdateJournal(const State& state, std::span<std::byte> memory, size_t slots)
    : state_(state),
      blocks_(state.space->blocks().size()),
      slots_(slots),
      slot_bytes_(bytes_of_slot(state.arrays.size(), state.statistics.size())),
      versions_(reinterpret_cast<std::atomic<uint64_t>*>(memory.data())),
      slots_begin_(memory.data() + versions_bytes(blocks_)) {}

UpdateJournal::Slot& UpdateJournal::slot(size_t index) const {
  if (index >= slots_) throw std::logic_error("there are more lanes than slots in the journal");
  return *reinterpret_cast<Slot*>(slots_begin_ + index * slot_bytes_);
}

float* UpdateJournal::kept_floats(size_t slot) const {
  return reinterpret_cast<float*>(slots_begin_ + slot * slot_bytes_ + kLine);
}

size_t UpdateJournal::end_piece(size_t block) const {
  if (block == blocks_) return first_piece(block) + 1;
  const size_t size = state_.space->blocks()[block].size;
  return first_piece(block) + (size + kPieceElements - 1) / kPieceElements;
}

UndoLog UpdateJournal::begin(size_t index, size_t piece, uint64_t update) {
  Slot& own = slot(index);
  float* const floats = kept_floats(index);
  own.piece.store(kNone, std::memory_order_relaxed);
  keep_store_order();
  const bool is_statistics = piece == first_piece(blocks_);
  if (is_statistics) std::copy(state_.statistics.begin(), state_.statistics.end(), floats);
  own.kept.store(is_statistics ? state_.statistics.size() : 0, std::memory_order_relaxed);
  own.update.store(update, std::memory_order_relaxed);
  keep_store_order();
  own.piece.store(piece, std::memory_order_relaxed);
  keep_store_order();
  return {&own.kept, floats, {floats + kPieceElements, floats + 2 * kPieceElements}};
}

void UpdateJournal::reset(uint64_t update) {
  for (size_t index = 0; index < slots_; ++index) slot(index).piece.store(kNone);
  for (size_t piece = 0; piece < end_piece(blocks_); ++piece) end(piece, update);
}

void UpdateJournal::restore(BlockRange blocks, uint64_t update) {
  for (size_t index = 0; index < slots_; ++index) {
    const Slot& kept = slot(index);
    const uint64_t piece = kept.piece.load(std::memory_order_acquire);
    const bool is_torn = kept.update.load(std::memory_order_acquire) == update &&
                         piece >= first_piece(blocks.first) && piece < first_piece(blocks.last) &&
                         !is_done(piece, update);
    if (!is_torn) continue;
    const auto count = static_cast<std::ptrdiff_t>(kept.kept.load(std::memory_order_acquire));
    const float* floats = kept_floats(index);
    if (piece == first_piece(blocks_)) {
      std::copy_n(floats, count, state_.statistics.begin());
      continue;
    }
    const size_t begin =
        state_.space->blocks()[piece / kPieces].offset + piece % kPieces * kPieceElements;
    for (float* const array : state_.arrays) {
      std::copy_n(floats, count, array + begin);
      floats += kPieceElements;
    }
  }
}

}  // namespace starling
