#include "cluster/commit.h"

#include <gtest/gtest.h>

#include <map>

#include "cluster/commit_testing.h"
#include "fabric/sim/sim_testing.h"

namespace starling::commit {
namespace {

// A state each, one for all, or one for all and members that meet instead of sending word.
enum class Kind { kReplicated, kShared, kMeeting };

class Commit : public testing::TestWithParam<Kind> {
 protected:
  ToyOptions toy() const {
    return {.shared_state = GetParam() != Kind::kReplicated, .meets = GetParam() == Kind::kMeeting};
  }
};

std::string describe(const ToyOptions& options) {
  return "seed " + std::to_string(options.seed) + ", members " + std::to_string(options.members) +
         ", kill after " + std::to_string(options.kill_after.value_or(-1)) + ", victim " +
         std::to_string(options.victim);
}

TEST_P(Commit, UndisturbedMembersComputeTheChain) {
  for (int members : {1, 2, 3, 4}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      ToyOptions options = toy();
      options.members = members;
      options.seed = seed;
      const ToyOutcome outcome = ToyWorld(options).run();
      ASSERT_EQ(outcome.wrong, "") << describe(options);
      ASSERT_TRUE(outcome.done) << describe(options);
    }
  }
}

// Replays each schedule with a death of each member, newcomer and leaver after each of its events.
TEST_P(Commit, SurvivesADeathAtEveryTransition) {
  std::map<std::string, int> deaths_after;  // transition → how often
  std::set<std::string> seen;
  for (int members : {2, 3}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      ToyOptions options = toy();
      options.members = members;
      options.seed = seed;
      options.joins = seed % 2 == 0 ? 1 : 0;
      options.leaves = seed >= 6 ? 1 : 0;
      options.deaths = seed % 3 == 0 && members > 2 ? 1 : 0;  // a death during recovery
      options.steps = 3;
      const ToyOutcome calm = ToyWorld(options).run();
      ASSERT_EQ(calm.wrong, "") << describe(options);
      seen.insert(calm.events.begin(), calm.events.end());
      const auto events = static_cast<int>(calm.events.size()) + 20;
      for (int event = 0; event < events; ++event) {
        for (int victim = 0; victim < members + options.joins; ++victim) {
          options.kill_after = event;
          options.victim = victim;
          const ToyOutcome outcome = ToyWorld(options).run();
          ASSERT_EQ(outcome.wrong, "") << describe(options);
          if (!outcome.killed_after.empty()) ++deaths_after[outcome.killed_after];
        }
      }
    }
  }
  for (const auto& [transition, count] : deaths_after) {
    printf("  deaths after %-28s %6d\n", transition.c_str(), count);
  }
  for (const std::string& transition : seen) EXPECT_GT(deaths_after[transition], 0) << transition;
  for (const char* phase : {"working", "reduced"}) {
    EXPECT_TRUE(seen.contains(std::string("asked to leave/") + phase)) << phase;
    EXPECT_TRUE(seen.contains(std::string("retired/") + phase)) << phase;
  }
}

TEST_P(Commit, RandomSchedulesKeepTheBits) {
  int runs = 0, done = 0, lost = 0;
  for_each_seed(4000, [&](uint64_t seed) {
    ToyOptions options = toy();
    options.seed = seed;
    options.members = 2 + static_cast<int>(seed % 5);
    options.deaths = static_cast<int>(seed % 4);
    options.joins = static_cast<int>(seed / 4 % 3);
    options.leaves = static_cast<int>(seed / 12 % 2);
    options.pauses = static_cast<int>(seed / 24 % 3);
    options.partitions = static_cast<int>(seed / 72 % 3);
    options.steps = 3;
    const ToyOutcome outcome = ToyWorld(options).run();
    EXPECT_EQ(outcome.wrong, "") << describe(options);
    ++runs;
    done += outcome.done;
    lost += outcome.lost_state;
  });
  printf("  %d of %d runs reached the last step, %d lost all who had the state\n", done, runs,
         lost);
  EXPECT_GT(done, runs * 3 / 4);
}

Message ready(int from, int64_t view, Progress progress, int64_t reduced_in) {
  return {.kind = Message::Kind::kReady,
          .view = view,
          .from = from,
          .has_state = true,
          .progress = progress,
          .reduced_in = reduced_in};
}

TEST(CommitCoordinator, WaitsForWhatALeaverHadNotGiven) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0, 1}));
  static_cast<void>(coordinator.left(1));
  static_cast<void>(coordinator.receive(ready(0, 2, {7, Phase::kReduced}, 1)));
  const std::vector<Action> actions = coordinator.receive(ready(1, 2, {7, Phase::kWorking}, 1));
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_TRUE(actions[0].message.redo);
  EXPECT_EQ(actions[0].message.members, std::vector<int>{0});
}

// The Resume that the coordinator sends when it hears these.
Message resume_after(Coordinator& coordinator, const std::vector<Message>& messages) {
  std::vector<Action> actions;
  for (const Message& message : messages) actions = coordinator.receive(message);
  EXPECT_FALSE(actions.empty());
  return actions.empty() ? Message{} : actions.front().message;
}

TEST(CommitCoordinator, CompletesAStepThatAllSurvivorsHaveReduced) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0, 1, 2}));
  static_cast<void>(coordinator.died(1));
  const Message resume = resume_after(
      coordinator, {ready(0, 2, {7, Phase::kReduced}, 1), ready(2, 2, {8, Phase::kWorking}, 1)});
  EXPECT_EQ(resume.step, 7);
  EXPECT_FALSE(resume.redo);
  EXPECT_EQ(resume.members, (std::vector<int>{0, 2}));
}

TEST(CommitCoordinator, RedoesAStepThatASurvivorHasNotReduced) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0, 1, 2}));
  static_cast<void>(coordinator.died(1));
  const Message resume = resume_after(
      coordinator, {ready(0, 2, {7, Phase::kReduced}, 1), ready(2, 2, {7, Phase::kWorking}, 1)});
  EXPECT_EQ(resume.step, 7);
  EXPECT_TRUE(resume.redo);
}

// Worker 0 never hears of the redo, in which worker 2 began to overwrite what both had reduced.
TEST(CommitCoordinator, SumsFromBeforeARedoAreVoid) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0, 1, 2}));
  static_cast<void>(coordinator.died(1));
  const Message first = resume_after(
      coordinator, {ready(0, 2, {7, Phase::kReduced}, 1), ready(2, 2, {7, Phase::kWorking}, 1)});
  ASSERT_TRUE(first.redo);
  static_cast<void>(coordinator.died(2));
  const Message second = resume_after(coordinator, {ready(0, 3, {7, Phase::kReduced}, 1)});
  EXPECT_EQ(second.step, 7);
  EXPECT_TRUE(second.redo);
}

TEST(CommitCoordinator, HearsNothingFromAnotherView) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0, 1}));
  static_cast<void>(coordinator.died(1));
  EXPECT_TRUE(coordinator.receive(ready(0, 1, {3, Phase::kWorking}, 1)).empty());
  EXPECT_FALSE(coordinator.receive(ready(0, 2, {3, Phase::kWorking}, 1)).empty());
  EXPECT_TRUE(coordinator.receive(ready(0, 2, {3, Phase::kWorking}, 1)).empty()) << "twice";
}

TEST(CommitCoordinator, SaysWhenNobodyHasTheState) {
  Coordinator coordinator;
  static_cast<void>(coordinator.joined({0}));
  static_cast<void>(coordinator.joined({1}));
  static_cast<void>(coordinator.died(0));
  Message newcomer = ready(1, 3, {}, 0);
  newcomer.has_state = false;
  EXPECT_TRUE(coordinator.receive(newcomer).empty());
  EXPECT_TRUE(coordinator.lost_state());
}

INSTANTIATE_TEST_SUITE_P(State, Commit,
                         testing::Values(Kind::kReplicated, Kind::kShared, Kind::kMeeting),
                         [](const auto& test) {
                           return test.param == Kind::kReplicated ? "Replicated"
                                  : test.param == Kind::kShared   ? "Shared"
                                                                  : "Meeting";
                         });

}  // namespace
}  // namespace starling::commit
