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
    memory_ = Buffer<std::byte>(UpdateJournal::bytes(space_, kStatistics, kSlots));
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    journal_.emplace(UpdateJournal::State{&space_, {weights_.data(), moments_.data()}, statistics_},
                     memory_.span(), kSlots);
  }

  float& weight(size_t block, size_t element = 0) {
    return weights_[space_.blocks()[block].offset + element];
  }
  float& moment(size_t block, size_t element = 0) {
    return moments_[space_.blocks()[block].offset + element];
  }
  BlockRange all() const { return {0, journal_->statistics_block() + 1}; }

  // A writer that dies where it has written the first element of the group at `first`, and all
  // before it.
  void die_in(size_t slot, size_t block, uint64_t update, size_t first = 0) {
    constexpr size_t kCount = UndoLog::kElements;
    const size_t begin = journal_->progress(block, update);
    const UndoLog undo = journal_->begin(slot, block, update, begin);
    for (size_t group = begin; group <= first; group += kCount) {
      const size_t count = std::min(kCount, space_.blocks()[block].size - group);
      std::copy_n(&weight(block, group), count, UndoLog::place(undo.floats, group, 0));
      std::copy_n(&moment(block, group), count, UndoLog::place(undo.floats, group, 1));
      undo.under_way->store(UndoLog::elements(group, count));
      for (size_t i = 0; i < (group == first ? 1 : count); ++i) weight(block, group + i) = 10;
    }
  }

  ParameterSpace space_;
  std::vector<float> weights_, moments_, statistics_;
  Buffer<std::byte> memory_;
  std::optional<UpdateJournal> journal_;
};

TEST_F(UpdateJournalTest, ElementsUnderWayGetTheirOldValuesBack) {
  die_in(0, 1, 1);
  EXPECT_FALSE(journal_->is_done(1, 1));
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1), 1);
  EXPECT_EQ(moment(1), 2);
  EXPECT_EQ(journal_->progress(1, 1), 0u);
}

TEST_F(UpdateJournalTest, ElementsThatAreUpdatedStay) {
  const size_t first = 3 * UndoLog::kElements;
  die_in(0, 1, 1, first);
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1, first - 1), 10);
  EXPECT_EQ(weight(1, first), 1);
  EXPECT_EQ(journal_->progress(1, 1), first);
  EXPECT_EQ(journal_->progress(0, 1), 0u) << "of another block";
  EXPECT_EQ(journal_->progress(1, 2), 0u) << "of another update";
}

// Its numbers begin anew at an earlier one: what was done under them before is not done.
TEST_F(UpdateJournalTest, AStateThatWentBackHasNothingDoneAndNothingUnderWay) {
  for (uint64_t update = 1; update <= 3; ++update) {
    journal_->begin(0, 1, update);
    journal_->end(1, update);
  }
  die_in(1, 0, 3);
  journal_->reset(2);
  for (const size_t block : {0, 1}) EXPECT_FALSE(journal_->is_done(block, 3)) << block;
  EXPECT_FALSE(journal_->is_done(journal_->statistics_block(), 3));
  weight(0) = 5;  // as it was after update 2
  journal_->restore(all(), 3);
  EXPECT_EQ(weight(0), 5);
  EXPECT_EQ(journal_->progress(0, 3), 0u);
}

TEST_F(UpdateJournalTest, ABlockThatIsDoneStays) {
  die_in(0, 1, 1);
  journal_->end(1, 1);
  EXPECT_TRUE(journal_->is_done(1, 1));
  EXPECT_FALSE(journal_->is_done(1, 2));
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1), 10);
}

TEST_F(UpdateJournalTest, OnlyTheBlocksOfTheRangeAreRestored) {
  die_in(0, 0, 1);
  die_in(1, 3, 1);
  journal_->restore({3, 4}, 1);
  EXPECT_EQ(weight(0), 10);
  EXPECT_EQ(weight(3), 1);
}

// Slots keep what they held; it is of no meaning for another update.
TEST_F(UpdateJournalTest, ASlotOfAnEarlierUpdateIsForgotten) {
  die_in(0, 2, 1);
  journal_->end(2, 1);
  weight(2) = 11;  // by others
  journal_->restore(all(), 2);
  EXPECT_EQ(weight(2), 11);
}

// Two writers die in the same block, one after the other, the second further on; then a third one
// who has not come to write anything.
TEST_F(UpdateJournalTest, SeveralMayDieInABlock) {
  const size_t group = UndoLog::kElements;
  die_in(0, 1, 1, group);
  journal_->restore(all(), 1);
  die_in(1, 1, 1, 2 * group);
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1, group), 10) << "the second has updated it";
  EXPECT_EQ(weight(1, 2 * group), 1);
  EXPECT_EQ(journal_->progress(1, 1), 2 * group);
  journal_->begin(0, 1, 1, journal_->progress(1, 1));
  journal_->restore(all(), 1);
  EXPECT_EQ(weight(1, group), 10);
  EXPECT_EQ(journal_->progress(1, 1), 2 * group);
}

// Who restores may die too: the next one does it again.
TEST_F(UpdateJournalTest, RestoringTwiceIsAsGoodAsOnce) {
  die_in(0, 1, 1, UndoLog::kElements);
  for (int i = 0; i < 2; ++i) {
    journal_->restore(all(), 1);
    EXPECT_EQ(weight(1, UndoLog::kElements), 1);
    EXPECT_EQ(journal_->progress(1, 1), UndoLog::kElements);
  }
}

TEST_F(UpdateJournalTest, StatisticsAreABlockToo) {
  const size_t block = journal_->statistics_block();
  journal_->begin(1, block, 4);
  statistics_[5] = 50;
  journal_->restore(all(), 4);
  EXPECT_EQ(statistics_[5], 3);
  journal_->begin(1, block, 4);
  statistics_[5] = 50;
  journal_->end(block, 4);
  journal_->restore(all(), 4);
  EXPECT_EQ(statistics_[5], 50);
}

TEST_F(UpdateJournalTest, MoreLanesThanSlotsAreAFault) {
  EXPECT_THROW(journal_->begin(kSlots, 0, 1), std::logic_error);
}

}  // namespace
}  // namespace starling
