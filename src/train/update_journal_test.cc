#include "train/update_journal.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/buffer.h"

namespace starling {
namespace {

// A space of several blocks with two arrays over it, and running statistics.
class UpdateJournalTest : public testing::Test {
 protected:
  static constexpr size_t kSlots = 2, kStatistics = 6;

  UpdateJournalTest() {
    space_.add("w", {3, static_cast<int64_t>(kBlockElements)}, {});
    space_.add("b", {5}, {});
    weights_.assign(space_.total_floats(), 1.0f);
    moments_.assign(space_.total_floats(), 2.0f);
    statistics_.assign(kStatistics, 3.0f);
    memory_ = Buffer<std::byte>(UpdateJournal::bytes(space_, 2, kStatistics, kSlots));
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    journal_.emplace(UpdateJournal::State{&space_, {weights_.data(), moments_.data()}, statistics_},
                     memory_.span(), kSlots);
  }

  float& weight(size_t block) { return weights_[space_.blocks()[block].offset]; }
  float& moment(size_t block) { return moments_[space_.blocks()[block].offset]; }
  size_t piece(size_t block) const { return journal_->first_piece(block); }
  // Begins a piece and keeps the first element of each array, as one does who is about to write it.
  void begin(size_t slot, size_t piece, uint64_t update, size_t kept = 1) {
    const UndoLog undo = journal_->begin(slot, piece, update);
    if (piece == this->piece(journal_->statistics_block())) return;
    const size_t at = space_.blocks()[piece / UpdateJournal::kPieces].offset +
                      piece % UpdateJournal::kPieces * UpdateJournal::kPieceElements;
    std::copy_n(weights_.begin() + static_cast<std::ptrdiff_t>(at), kept, undo.weights);
    std::copy_n(moments_.begin() + static_cast<std::ptrdiff_t>(at), kept, undo.states[0]);
    *undo.kept = kept;
  }
  BlockRange all() const { return {0, journal_->statistics_block() + 1}; }

  ParameterSpace space_;
  std::vector<float> weights_, moments_, statistics_;
  Buffer<std::byte> memory_;
  std::optional<UpdateJournal> journal_;
};

TEST_F(UpdateJournalTest, ATornBlockGetsItsOldContentBack) {
  begin(0, piece(1), 1);
  weight(1) = 10;  // the writer dies before the moment is written
  EXPECT_FALSE(journal_->is_done(piece(1), 1));
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1), 1);
  EXPECT_EQ(moment(1), 2);
}

// Its numbers begin anew at an earlier one: what was done under them before is not done.
TEST_F(UpdateJournalTest, AStateThatWentBackHasNothingDoneAndNothingTorn) {
  for (uint64_t update = 1; update <= 3; ++update) {
    begin(0, piece(1), update);
    journal_->end(piece(1), update);
  }
  begin(1, piece(0), 3);
  weight(0) = 10;
  journal_->reset(2);
  for (const size_t block : {0, 1}) EXPECT_FALSE(journal_->is_done(piece(block), 3)) << block;
  EXPECT_FALSE(journal_->is_done(piece(journal_->statistics_block()), 3));
  weight(0) = 5;  // as it was after update 2
  journal_->restore(all(), 3);
  EXPECT_EQ(weight(0), 5);
}

TEST_F(UpdateJournalTest, ABlockThatIsDoneStays) {
  begin(0, piece(1), 1);
  weight(1) = 10;
  moment(1) = 20;
  journal_->end(piece(1), 1);
  EXPECT_TRUE(journal_->is_done(piece(1), 1));
  EXPECT_FALSE(journal_->is_done(piece(1), 2));
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1), 10);
  EXPECT_EQ(moment(1), 20);
}

TEST_F(UpdateJournalTest, OnlyTheBlocksOfTheRangeAreRestored) {
  begin(0, piece(0), 1);
  weight(0) = 10;
  begin(1, piece(3), 1);
  weight(3) = 30;
  journal_->restore({3, 4}, 1);
  EXPECT_EQ(weight(0), 10);
  EXPECT_EQ(weight(3), 1);
}

// Slots keep what they held; it is of no meaning for another update.
TEST_F(UpdateJournalTest, ASlotOfAnEarlierUpdateIsForgotten) {
  begin(0, piece(2), 1);
  weight(2) = 10;
  journal_->end(piece(2), 1);
  weight(2) = 11;  // by others
  journal_->restore(all(), 2);
  EXPECT_EQ(weight(2), 11);
}

TEST_F(UpdateJournalTest, PiecesCoverTheirBlocks) {
  EXPECT_EQ(journal_->end_piece(0) - journal_->first_piece(0), UpdateJournal::kPieces);
  EXPECT_EQ(journal_->end_piece(3) - journal_->first_piece(3), 1u);  // 5 elements
  const size_t last = journal_->end_piece(1) - 1;
  float& element = weights_[space_.blocks()[1].offset + kBlockElements - 1];
  begin(0, last, 1, UpdateJournal::kPieceElements);
  element = 10;
  weight(1) = 11;  // of another piece
  journal_->restore(all(), 1);
  EXPECT_EQ(element, 1);
  EXPECT_EQ(weight(1), 11);
}

// Two writers died in the same piece, one after the other: both slots have what it was.
TEST_F(UpdateJournalTest, ABlockMayBeTornTwice) {
  begin(0, piece(1), 1);
  weight(1) = 10;
  journal_->restore(all(), 1);
  begin(1, piece(1), 1);
  weight(1) = 99;
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1), 1);
}

TEST_F(UpdateJournalTest, StatisticsAreABlockToo) {
  const size_t block = journal_->statistics_block();
  begin(1, piece(block), 4);
  statistics_[5] = 50;
  journal_->restore(all(), 4);
  EXPECT_EQ(statistics_[5], 3);
  begin(1, piece(block), 4);
  statistics_[5] = 50;
  journal_->end(piece(block), 4);
  journal_->restore(all(), 4);
  EXPECT_EQ(statistics_[5], 50);
}

TEST_F(UpdateJournalTest, MoreLanesThanSlotsAreAFault) {
  EXPECT_THROW(journal_->begin(kSlots, piece(0), 1), std::logic_error);
}

}  // namespace
}  // namespace starling
