#include "job/faults_file.h"

#include <gtest/gtest.h>

#include "base/read_file.h"

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
