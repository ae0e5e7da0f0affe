// Processes that update shared state are killed wherever they are, one after the other: what each
// leaves can be finished, element by element as if nothing had happened.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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

  // A block by update `number`.
  void write(const Arrays& arrays, size_t block, uint64_t number, const UndoLog* undo) const {
    const size_t at = space_.blocks()[block].offset;
    std::array<float*, kMaxStates> states = {arrays[1] + at, arrays[2] + at};
    const UpdateSettings settings(adam(0.01), 0.01, number - 1);
    const float* const gradient = gradient_.data() + at;
    ASSERT_TRUE(update_block(settings, std::nullopt, {&gradient, 1}, space_.blocks()[block].size,
                             arrays[0] + at, states.data(), {.undo = undo}));
  }
  void write_all(const Arrays& arrays, uint64_t number) const {
    for (size_t block = 0; block < space_.blocks().size(); ++block)
      write(arrays, block, number, nullptr);
  }
  Arrays arrays_in(float* floats) const {
    return {floats, floats + space_.total_floats(), floats + 2 * space_.total_floats()};
  }

  ParameterSpace space_;
  std::vector<float> gradient_;
};

// Each process dies in what the one before has left, or in a later update.
TEST_F(UpdateJournalKill, AnyoneCanFinishWhatADeadProcessHasBegun) {
  constexpr int kKills = 100;
  constexpr size_t kHeader = 64;
  const size_t floats = kArrays * space_.total_floats(), blocks = space_.blocks().size();
  const SharedSegment segment = SharedSegment::create(
      "test", kHeader + floats * sizeof(float) + UpdateJournal::bytes(space_, 0, 2));
  auto* const header = reinterpret_cast<std::atomic<uint64_t>*>(segment.bytes().data());
  std::atomic<uint64_t>&number = header[0], &started = header[1];
  auto* const state = reinterpret_cast<float*>(segment.bytes().data() + kHeader);
  const Arrays shared = arrays_in(state);
  UpdateJournal journal({&space_, {shared.begin(), shared.end()}, {}},
                        segment.bytes().subspan(kHeader + floats * sizeof(float)), 2);
  const auto update = [&](size_t slot, bool completing) {
    if (completing) journal.restore({0, blocks}, number);
    for (size_t block = 0; block < blocks; ++block) {
      if (journal.is_done(block, number)) continue;
      const size_t first = completing ? journal.progress(block, number) : 0;
      const UndoLog undo = journal.begin(slot, block, number, first);
      write(shared, block, number, &undo);
      journal.end(block, number);
    }
  };

  std::vector<float> before(floats), after(floats);  // the update under way
  uint64_t known = 0;
  size_t given_back = 0, partly = 0, twice = 0;
  for (int i = 0; i < kKills; ++i) {
    const uint64_t began = number;
    started = 0;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      started = 1;
      const size_t slot = static_cast<size_t>(i) % 2;
      update(slot, true);  // what the one before has left
      while (true) {
        ++number;
        update(slot, false);
      }
    }
    // Half of them may be finishing that when they die; the others are further on.
    while (started == 0 || (i % 2 == 0 && number < began + 1 + static_cast<uint64_t>(i) % 7)) {
    }
    for (std::atomic<int> spin = 0; spin < 97 * (i % 13);) ++spin;
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    if (number == began) ++twice;

    for (; known < number; ++known) {
      before = after;
      write_all(arrays_in(after.data()), known + 1);
    }
    const std::vector<float> torn(state, state + floats);
    journal.restore({0, blocks}, number);
    if (!std::equal(torn.begin(), torn.end(), state)) ++given_back;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t at = space_.blocks()[block].offset, size = space_.blocks()[block].size;
      const size_t updated =
          journal.is_done(block, number) ? size : journal.progress(block, number);
      if (updated > 0 && updated < size) ++partly;
      for (size_t kind = 0; kind < kArrays; ++kind) {
        const auto* const found = shared[kind] + at;
        const auto* const is_new = arrays_in(after.data())[kind] + at;
        const auto* const is_old = arrays_in(before.data())[kind] + at;
        ASSERT_TRUE(std::equal(found, found + updated, is_new) &&
                    std::equal(found + updated, found + size, is_old + updated))
            << "block " << block << ", array " << kind << ", " << updated << " updated, update "
            << number << ", kill " << i;
      }
    }
  }
  // Else nothing was looked at.
  EXPECT_GT(given_back, 0u);
  EXPECT_GT(partly, 0u);
  fmt::print(
      "{} of {} died within an element's update, {} blocks were left half done, {} died "
      "where another had\n",
      given_back, kKills, partly, twice);
}

}  // namespace
}  // namespace starling
