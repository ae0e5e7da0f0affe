#include "observe/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/atomic_file.h"
#include "base/atomic_file_testing.h"
#include "base/read_file.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RunLog, WritesAllAndShowsWarnings) {
  const TemporaryFolder folder;
  std::vector<std::string> shown;
  RunLog log(folder.path() / "log.txt", [&](std::string_view line) { shown.emplace_back(line); });
  log.info("epoch 1 {}");  // braces are text, not a format
  log.warn("a damaged checkpoint");
  log.error("the end");
  EXPECT_THAT(shown, ElementsAre("warning: a damaged checkpoint"));
  const std::string text = read_text(folder.path() / "log.txt", 10000);
  EXPECT_THAT(text, HasSubstr("info    epoch 1 {}\n"));
  EXPECT_THAT(text, HasSubstr("warning a damaged checkpoint\n"));
  EXPECT_THAT(text, HasSubstr("error   the end\n"));
}

TEST(RunLog, ResumedRunGoesOnWithTheSameFile) {
  const TemporaryFolder folder;
  RunLog(folder.path() / "log.txt").info("first");
  RunLog(folder.path() / "log.txt").info("second");
  const std::string text = read_text(folder.path() / "log.txt", 10000);
  EXPECT_LT(text.find("first"), text.find("second"));
  EXPECT_NE(text.find("second"), std::string::npos);
}

TEST(RunLog, UnwritablePlaceIsAnErrorWithAHint) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "x");
  refusal([&] { RunLog(folder.path() / "file" / "log.txt"); });
}

TEST(RunLog, FullDiskIsSaidOnceAndEndsNothing) {
  const SmallDisk disk("16k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  std::vector<std::string> shown;
  RunLog log(disk.path() / "log.txt", [&](std::string_view line) { shown.emplace_back(line); });
  for (int i = 0; i < 100; ++i) log.info(std::string(1000, 'x'));
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_THAT(shown[0], HasSubstr("can't be written"));
}

}  // namespace
}  // namespace starling
