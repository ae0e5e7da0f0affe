#include "job/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/atomic_file_testing.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

std::string refusal(RunFolder& folder) {
  return error_of([&] { folder.take(FolderUse::kNew); }).what();
}

// Between taking a folder and writing the first file another would find it empty.
TEST(RunFolder, IsOneRunsFromTheMomentThatItTakesIt) {
  const TemporaryFolder parent;
  std::optional<RunFolder> first(std::in_place, parent.path() / "run");
  RunFolder second(parent.path() / "run");
  first->take(FolderUse::kNew);
  EXPECT_NO_THROW(second.check(FolderUse::kNew)) << "nothing is in it";
  EXPECT_THAT(refusal(second), HasSubstr("a run is under way"));
  first.reset();
  EXPECT_NO_THROW(second.take(FolderUse::kNew));
}

TEST(RunFolder, StaysTheRunsWhenAnotherWorkerTakesItOver) {
  const TemporaryFolder parent;
  std::optional<RunFolder> chief(std::in_place, parent.path() / "run");
  RunFolder next_chief(parent.path() / "run"), other_run(parent.path() / "run");
  chief->take(FolderUse::kNew);
  next_chief.take_over();  // too early: who had it has not ended
  chief.reset();
  next_chief.take_over();
  EXPECT_THAT(refusal(other_run), HasSubstr("a run is under way"));
}

}  // namespace
}  // namespace starling
