// A process that updates shared state is killed wherever it is, again and again: what it leaves can
// be finished, element by element as if nothing had happened.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/random.h"
#include "fabric/shm/shared_segment.h"
#include "starling/optimizer.h"
#include "train/update_journal.h"

namespace starling {
namespace {

constexpr size_t kArrays = 3;  // weights and two states

// Arrays over the space, here or in memory that is shared.
using Arrays = std::array<float*, kArrays>;

class UpdateJournalKill : public testing::Test {
 protected:
  UpdateJournalKill() {
    space_.add("w", {3, static_cast<int64_t>(kBlockElements)}, {});
    space_.add("b", {77}, {});
    const RandomStream random(3, Draw::kSynthetic, 0, 0);
    for (size_t i = 0; i < space_.total_floats(); ++i) gradient_.push_back(random.normal(i));
  }

  // Of one piece, by update `number`.
  void write(const Arrays& arrays, size_t piece, uint64_t number, const UndoLog* undo) const {
    const auto [at, count] = place(piece);
    std::array<float*, kMaxStates> states = {arrays[1] + at, arrays[2] + at};
    const UpdateSettings settings(adam(0.01), 0.01, number - 1);
    ASSERT_TRUE(update_block(settings, std::nullopt, gradient_.data() + at, count, arrays[0] + at,
                             states.data(), undo));
  }
  std::pair<size_t, size_t> place(size_t piece) const {
    const Block& block = space_.blocks()[piece / UpdateJournal::kPieces];
    const size_t begin = piece % UpdateJournal::kPieces * UpdateJournal::kPieceElements;
    return {block.offset + begin, std::min(UpdateJournal::kPieceElements, block.size - begin)};
  }
  std::vector<size_t> pieces(const UpdateJournal& journal) const {
    std::vector<size_t> all;
    for (size_t block = 0; block < space_.blocks().size(); ++block) {
      for (size_t piece = journal.first_piece(block); piece < journal.end_piece(block); ++piece)
        all.push_back(piece);
    }
    return all;
  }

  ParameterSpace space_;
  std::vector<float> gradient_;
};

TEST_F(UpdateJournalKill, WhatADeadProcessLeavesIsOldOrNewOrGivenBack) {
  constexpr int kKills = 100;
  const size_t floats = space_.total_floats();
  size_t torn = 0, done = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const size_t state_bytes = kArrays * floats * sizeof(float);
    const SharedSegment segment = SharedSegment::create(
        "test", sizeof(uint64_t) * 8 + state_bytes + UpdateJournal::bytes(space_, kArrays, 0, 1));
    auto& under_way = *reinterpret_cast<std::atomic<uint64_t>*>(segment.bytes().data());
    auto* const state = reinterpret_cast<float*>(segment.bytes().data() + sizeof(uint64_t) * 8);
    const Arrays shared = {state, state + floats, state + 2 * floats};
    UpdateJournal journal({&space_, {shared.begin(), shared.end()}, {}},
                          segment.bytes().subspan(sizeof(uint64_t) * 8 + state_bytes), 1);
    const std::vector<size_t> all = pieces(journal);

    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (uint64_t number = 1;; ++number) {
        under_way = number;
        for (const size_t piece : all) {
          const UndoLog undo = journal.begin(0, piece, number);
          write(shared, piece, number, &undo);
          journal.end(piece, number);
        }
      }
    }
    const uint64_t enough = 1 + static_cast<uint64_t>(kill_number) % 7;
    while (under_way < enough) {
    }
    for (std::atomic<int> spin = 0; spin < 977 * (kill_number % 13);) ++spin;
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);

    const uint64_t last = under_way;
    std::vector<float> before(kArrays * floats), after, torn_state(state, state + before.size());
    const Arrays expected = {before.data(), before.data() + floats, before.data() + 2 * floats};
    for (uint64_t number = 1; number < last; ++number) {
      for (const size_t piece : all) write(expected, piece, number, nullptr);
    }
    journal.restore({0, space_.blocks().size()}, last);
    if (!std::equal(torn_state.begin(), torn_state.end(), state)) ++torn;
    after = before;
    const Arrays updated = {after.data(), after.data() + floats, after.data() + 2 * floats};
    for (const size_t piece : all) write(updated, piece, last, nullptr);
    for (const size_t piece : all) {
      const bool is_done = journal.is_done(piece, last);
      const auto [at, count] = place(piece);
      for (size_t kind = 0; kind < kArrays; ++kind) {
        const float* const right = (is_done ? updated : expected)[kind] + at;
        ASSERT_TRUE(std::equal(right, right + count, shared[kind] + at))
            << "piece " << piece << (is_done ? " done" : " not done") << ", array " << kind
            << ", update " << last << ", kill " << kill_number;
      }
      done += is_done ? 1 : 0;
    }
  }
  // Else nothing was looked at.
  EXPECT_GT(torn, 0u);
  EXPECT_GT(done, 0u);
}

}  // namespace
}  // namespace starling
