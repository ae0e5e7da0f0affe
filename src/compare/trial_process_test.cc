#include "compare/trial_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "base/atomic_file_testing.h"

namespace starling {
namespace {

// It ends when it is let, which happens at the second look.
TEST(TrialProcess, IsLookedAtWhileItRuns) {
  const TemporaryFolder folder;
  const std::string gate = (folder.path() / "gate").string();
  TrialProcess process(
      {"/bin/sh", "-c", "until [ -e '" + gate + "' ]; do sleep 0.05; done; exit 7"},
      folder.path() / "log");
  int looks = 0;
  const auto look = [&] {
    if (++looks == 2) std::ofstream(gate) << "open";
  };
  EXPECT_EQ(process.wait([] { return false; }, look), 7);
  EXPECT_GE(looks, 2);
}

// It could as well have failed.
TEST(TrialProcess, AnEndThatNobodyIsToldOfIsNoSuccess) {
  const TemporaryFolder folder;
  const std::string gate = (folder.path() / "gate").string();
  const auto before = signal(SIGCHLD, SIG_IGN);
  TrialProcess process({"/bin/sh", "-c", "until [ -e '" + gate + "' ]; do sleep 0.05; done"},
                       folder.path() / "log");
  std::ofstream(gate) << "open";
  EXPECT_NE(process.wait([] { return false; }, [] {}), 0);
  signal(SIGCHLD, before);
}

}  // namespace
}  // namespace starling
