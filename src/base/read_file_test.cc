#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/atomic_file.h"
#include "base/atomic_file_testing.h"

namespace starling {
namespace {

TEST(ReadFile, GivesTheBytes) {
  const TemporaryFolder folder;
  const std::string text("a\0b\n", 4);
  write_file_atomically(folder.path() / "a", text);
  EXPECT_EQ(read_text(folder.path() / "a", 4), text);
  const FileBytes bytes = read_bytes(folder.path() / "a", 4);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.span().data()), bytes.size()), text);
  write_file_atomically(folder.path() / "empty", "");
  EXPECT_EQ(read_bytes(folder.path() / "empty", 0).size(), 0u);
}

TEST(ReadFile, RefusesWhatIsTooLargeBeforeAllocating) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "sparse";
  write_file_atomically(path, "abc");
  EXPECT_THROW(read_text(path, 2), Error);
  std::filesystem::resize_file(path, uint64_t{1} << 42);  // 4 TiB of nothing
  EXPECT_THROW(read_bytes(path, UINT64_MAX), Error);
}

TEST(ReadFile, RefusesMissingFilesFoldersAndPipes) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_text(folder.path() / "none", 10), Error);
  EXPECT_THROW(read_text(folder.path(), 10), Error);
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(read_text(pipe, 10), Error);
}

}  // namespace
}  // namespace starling
