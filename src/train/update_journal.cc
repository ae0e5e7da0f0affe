#include "train/update_journal.h"

#include <algorithm>
#include <stdexcept>

#include "base/store_order.h"
#include "tensor/buffer.h"

namespace starling {
namespace {

constexpr size_t kLine = 64, kPage = 4096;
constexpr uint64_t kNone = UINT64_MAX;  // no block

size_t versions_bytes(size_t blocks) { return round_up((blocks + 1) * sizeof(uint64_t), kPage); }

size_t bytes_of_slot(size_t statistics) {
  return kLine + round_up(std::max(UndoLog::kFloats, statistics) * sizeof(float), kLine);
}

}  // namespace

size_t UpdateJournal::bytes(const ParameterSpace& space, size_t statistics, size_t slots) {
  return versions_bytes(space.blocks().size()) + slots * bytes_of_slot(statistics);
}

UpdateJournal::UpdateJournal(const State& state, std::span<std::byte> memory, size_t slots)
    : state_(state),
      blocks_(state.space->blocks().size()),
      slots_(slots),
      slot_bytes_(bytes_of_slot(state.statistics.size())),
      versions_(reinterpret_cast<std::atomic<uint64_t>*>(memory.data())),
      slots_begin_(memory.data() + versions_bytes(blocks_)) {}

UpdateJournal::Slot& UpdateJournal::slot(size_t index) const {
  if (index >= slots_) throw std::logic_error("there are more lanes than slots in the journal");
  return *reinterpret_cast<Slot*>(slots_begin_ + index * slot_bytes_);
}

float* UpdateJournal::log(size_t slot) const {
  return reinterpret_cast<float*>(slots_begin_ + slot * slot_bytes_ + kLine);
}

bool UpdateJournal::is_at(const Slot& slot, size_t block, uint64_t update) const {
  return slot.block.load(std::memory_order_acquire) == block &&
         slot.update.load(std::memory_order_acquire) == update && !is_done(block, update);
}

UndoLog UpdateJournal::begin(size_t index, size_t block, uint64_t update, size_t first) {
  Slot& own = slot(index);
  float* const floats = log(index);
  own.block.store(kNone, std::memory_order_relaxed);
  keep_store_order();
  const bool is_statistics = block == blocks_;
  if (is_statistics) std::copy(state_.statistics.begin(), state_.statistics.end(), floats);
  own.under_way.store(UndoLog::elements(first, is_statistics ? state_.statistics.size() : 0),
                      std::memory_order_relaxed);
  own.update.store(update, std::memory_order_relaxed);
  keep_store_order();
  own.block.store(block, std::memory_order_relaxed);
  keep_store_order();
  return {&own.under_way, floats, first};
}

void UpdateJournal::reset(uint64_t update) {
  for (size_t index = 0; index < slots_; ++index) slot(index).block.store(kNone);
  for (size_t block = 0; block <= blocks_; ++block) end(block, update);
}

void UpdateJournal::restore(BlockRange blocks, uint64_t update) {
  for (size_t index = 0; index < slots_; ++index) {
    Slot& kept = slot(index);
    const uint64_t block = kept.block.load(std::memory_order_acquire);
    if (block < blocks.first || block >= blocks.last || !is_at(kept, block, update)) continue;
    const uint64_t under_way = kept.under_way.load(std::memory_order_acquire);
    const size_t first = UndoLog::first_of(under_way), count = UndoLog::count_of(under_way);
    if (block == blocks_) {
      std::copy_n(log(index), count, state_.statistics.begin());
      continue;
    }
    for (size_t array = 0; array < state_.arrays.size(); ++array) {
      std::copy_n(UndoLog::place(log(index), first, array), count,
                  state_.arrays[array] + state_.space->blocks()[block].offset + first);
    }
    // Who redoes these elements and dies has them in its own slot: this one has none any more.
    keep_store_order();
    kept.under_way.store(UndoLog::elements(first, 0), std::memory_order_relaxed);
  }
}

// Of several who died in this block one after the other, the last came furthest.
size_t UpdateJournal::progress(size_t block, uint64_t update) const {
  size_t furthest = 0;
  for (size_t index = 0; index < slots_; ++index) {
    const Slot& kept = slot(index);
    if (!is_at(kept, block, update)) continue;
    furthest =
        std::max(furthest, UndoLog::first_of(kept.under_way.load(std::memory_order_acquire)));
  }
  return furthest;
}

}  // namespace starling
