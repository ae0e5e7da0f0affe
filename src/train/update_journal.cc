#include "train/update_journal.h"

#include <algorithm>
#include <stdexcept>

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

// copy(floats of the state, floats of the slot, count) for all that the piece consists of.
template <typename Copy>
void UpdateJournal::for_parts(size_t slot, size_t piece, Copy copy) const {
  auto* kept = reinterpret_cast<float*>(slots_begin_ + slot * slot_bytes_ + kLine);
  if (piece == first_piece(blocks_))
    return copy(state_.statistics.data(), kept, state_.statistics.size());
  const Block& block = state_.space->blocks()[piece / kPieces];
  const size_t begin = piece % kPieces * kPieceElements;
  const size_t count = std::min(kPieceElements, block.size - begin);
  for (float* const array : state_.arrays) {
    copy(array + block.offset + begin, kept, count);
    kept += count;
  }
}

size_t UpdateJournal::end_piece(size_t block) const {
  if (block == blocks_) return first_piece(block) + 1;
  const size_t size = state_.space->blocks()[block].size;
  return first_piece(block) + (size + kPieceElements - 1) / kPieceElements;
}

void UpdateJournal::begin(size_t index, size_t piece, uint64_t update) {
  Slot& own = slot(index);
  // Exchanges, not stores: what follows must not be seen before them.
  own.piece.exchange(kNone, std::memory_order_acq_rel);
  for_parts(index, piece,
            [](const float* state, float* kept, size_t count) { std::copy_n(state, count, kept); });
  own.update.store(update, std::memory_order_release);
  own.piece.exchange(piece, std::memory_order_acq_rel);
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
    for_parts(index, piece, [](float* state, const float* saved, size_t count) {
      std::copy_n(saved, count, state);
    });
  }
}

}  // namespace starling
