#include "job/faults_file.h"

#include <gtest/gtest.h>

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
