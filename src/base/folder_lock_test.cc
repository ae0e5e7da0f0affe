#include "base/folder_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/atomic_file_testing.h"
#include "starling/error.h"

namespace starling {
namespace {

TEST(FolderLock, OneAtATimeHasIt) {
  const TemporaryFolder folder;
  std::optional<FolderLock> first(folder.path());
  EXPECT_TRUE(first->is_held());
  {
    const FolderLock second(folder.path());
    EXPECT_FALSE(second.is_held());
    EXPECT_TRUE(second.is_taken());
  }
  EXPECT_TRUE(FolderLock(folder.path()).is_taken()) << "who has not got it takes it from nobody";
  first.reset();
  EXPECT_TRUE(FolderLock(folder.path()).is_held());
}

TEST(FolderLock, AFolderThatIsNotThereIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(FolderLock(folder.path() / "none"), Error);
}

}  // namespace
}  // namespace starling
