#include "job/faults_file.h"

#include <gtest/gtest.h>

#include <set>

#include "base/read_file.h"
#include "starling/error.h"

namespace starling {
namespace {

TEST(FaultsFile, HasWhatThePlanSays) {
  const std::vector<Fault> faults = parse_faults(
      "[[fault]]\naction = \"kill\"\nworker = 3\npoint = \"announced\"\nstep = 12\n"
      "[[fault]]\naction = \"freeze\"\nworker = 0\npoint = \"results\"\n",
      "test");
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].action, Fault::Action::kKill);
  EXPECT_EQ(faults[0].worker, 3);
  EXPECT_EQ(faults[0].point, FaultPoint::kAnnounced);
  EXPECT_EQ(faults[0].step, 12u);
  EXPECT_EQ(faults[1].action, Fault::Action::kFreeze);
  EXPECT_EQ(faults[1].point, FaultPoint::kResults);
  EXPECT_EQ(faults[1].step, 0u);
  EXPECT_TRUE(parse_faults("", "test").empty());
}

TEST(FaultsFile, ASlowWorkerHasAFactorAndNoPoint) {
  const std::vector<Fault> faults = parse_faults(
      "[[fault]]\naction = \"slow\"\nworker = 2\nfactor = 4.0\nstep = 3\nsteps = 10\n"
      "[[fault]]\naction = \"slow\"\nfactor = 2\n",
      "test");
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].action, Fault::Action::kSlow);
  EXPECT_EQ(faults[0].worker, 2);
  EXPECT_EQ(faults[0].factor, 4);
  EXPECT_EQ(faults[0].step, 3u);
  EXPECT_EQ(faults[0].steps, 10u);
  EXPECT_EQ(faults[1].worker, Fault::kEveryWorker);
  EXPECT_EQ(faults[1].factor, 2);
  EXPECT_EQ(faults[1].steps, 0u);
  for (const char* rest : {"", "factor = 0.5\n", "factor = nan\n", "factor = \"4\"\n",
                           "factor = 4\npoint = \"step\"\n", "factor = 4\nworker = -1\n"}) {
    EXPECT_THROW(parse_faults(std::string("[[fault]]\naction = \"slow\"\n") + rest, "test"), Error)
        << rest;
  }
  EXPECT_THROW(parse_faults("[[fault]]\naction = \"kill\"\nworker = 0\npoint = \"step\"\n"
                            "factor = 4\n",
                            "test"),
               Error);
}

TEST(FaultsFile, EachActionHasItsOwnKeys) {
  const auto parse = [](const std::string& rest) {
    return parse_faults("[[fault]]\naction = " + rest, "test").at(0);
  };
  const Fault link = parse("\"link\"\nworker = 1\npeer = 2\npoint = \"step\"\nstep = 4\n");
  EXPECT_EQ(link.action, Fault::Action::kLink);
  EXPECT_EQ(link.peer, 2);
  EXPECT_EQ(parse("\"freeze\"\nworker = 1\nat = 2.5\n").at, 2.5);
  EXPECT_EQ(parse("\"corrupt\"\nat = 2.5\n").at, 2.5);
  EXPECT_EQ(parse("\"slow\"\nfactor = 2\nat = 2.5\nseconds = 3\n").seconds, 3);
  EXPECT_EQ(parse("\"disk\"\nstep = 2\nsteps = 3\n").worker, Fault::kEveryWorker);
  EXPECT_EQ(parse("\"corrupt\"\nstep = 2\n").step, 2u);
  for (const char* rest :
       {"\"link\"\nworker = 1\npoint = \"step\"\n", "\"corrupt\"\nworker = 1\n",
        "\"kill\"\nworker = 1\nat = -1\n", "\"hang\"\nworker = 1\nat = 1\nseconds = 2\n",
        "\"slow\"\nfactor = 2\nseconds = 2\n", "\"disk\"\nat = 1\nsteps = 2\n",
        "\"kill\"\nworker = 1\nat = 1\nstep = 2\n", "\"disk\"\nfactor = 2\n"}) {
    EXPECT_THROW(parse(rest), Error) << rest;
  }
}

TEST(FaultsFile, ASeedIsAPlan) {
  constexpr FaultSubject kSubject{.workers = 4, .has_links = true};
  std::set<Fault::Action> actions;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<Fault> faults = load_faults(std::to_string(seed), kSubject);
    std::set<int> workers;
    for (const Fault& fault : faults) {
      actions.insert(fault.action);
      if (fault.worker == Fault::kEveryWorker) continue;
      workers.insert(fault.worker);
      EXPECT_NE(fault.peer, fault.worker);
    }
    EXPECT_EQ(workers.size(), 3u) << "one stays";
    const std::vector<Fault> again = random_faults(seed, kSubject);
    ASSERT_EQ(faults.size(), again.size());
    for (size_t i = 0; i < faults.size(); ++i) {
      EXPECT_EQ(faults[i].action, again[i].action);
      EXPECT_EQ(faults[i].point, again[i].point);
      EXPECT_EQ(faults[i].step, again[i].step);
    }
  }
  EXPECT_EQ(actions.size(), 6u) << "all but one that hangs";
  EXPECT_TRUE(random_faults(7, {.workers = 1}).empty());
  EXPECT_THROW(load_faults("7x", kSubject), Error);
}

TEST(FaultsFile, EveryPointIsDocumented) {
  const std::string text =
      read_text(std::string(STARLING_SOURCE_DIR) + "/docs/faults.md", size_t{1} << 20);
  for (size_t i = 0; i < static_cast<size_t>(FaultPoint::kCount); ++i) {
    const std::string name(name_of(static_cast<FaultPoint>(i)));
    EXPECT_NE(text.find("| `" + name + "` |"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace starling
