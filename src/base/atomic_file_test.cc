#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/atomic_file_testing.h"
#include "base/read_file.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(AtomicFile, AppearsOnlyAtCommit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  AtomicFile file(path);
  file.write("hello ");
  file.write("world");
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(file.bytes(), 11u);
  EXPECT_EQ(read_text(path, 100), "hello world");
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre("a.txt"));
}

TEST(AtomicFile, ReplacesTheOldContentWhole) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  write_file_atomically(path, "a long old content");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text(path, 100), "new");
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  write_file_atomically(path, "old");
  { AtomicFile(path).write("half of the n"); }
  EXPECT_EQ(read_text(path, 100), "old");
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre("a.txt"));
}

TEST(AtomicFile, RefusesWritesAndCommitsAfterCommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder.path() / "a");
  file.commit();
  EXPECT_THROW(file.write("x"), Error);
  EXPECT_THROW(file.commit(), Error);
}

TEST(AtomicFile, FullDiskKeepsTheOldFileAndSaysWhatIsNeeded) {
  const SmallDisk disk("64k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  const auto path = disk.path() / "a.bin";
  write_file_atomically(path, "old");
  const std::string large(200000, 'x');
  const Error error = error_of([&] { write_file_atomically(path, large); });
  EXPECT_EQ(error.cause(), Error::Cause::kRun);
  EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  EXPECT_THAT(error.what(), HasSubstr("200000 bytes are needed"));
  EXPECT_THAT(error.what(), HasSubstr("bytes are free"));
  EXPECT_EQ(read_text(path, 100), "old");
  EXPECT_THAT(TemporaryFolder::names(disk.path()), ElementsAre("a.bin"));
}

TEST(AtomicFile, ReadOnlyDiskIsTheUsersToMend) {
  SmallDisk disk("64k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  ASSERT_TRUE(disk.make_read_only());
  const Error error = error_of([&] { write_file_atomically(disk.path() / "a", "x"); });
  EXPECT_EQ(error.cause(), Error::Cause::kInput);
  EXPECT_THAT(error.what(), HasSubstr("Read-only file system"));
  EXPECT_THAT(error.hint(), HasSubstr("read-only"));
  EXPECT_EQ(error_of([&] { make_folder(disk.path() / "b" / "c"); }).cause(), Error::Cause::kInput);
  EXPECT_THAT(TemporaryFolder::names(disk.path()), IsEmpty());
}

TEST(AtomicFile, MissingFolderFileAsFolderAndFolderAsFileAreNamed) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "x");
  std::filesystem::create_directory(folder.path() / "sub");
  const auto write_to = [&](const std::filesystem::path& path) {
    const Error error = error_of([&] { write_file_atomically(path, "x"); });
    EXPECT_EQ(error.cause(), Error::Cause::kInput);
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
    return error.hint();
  };
  EXPECT_THAT(write_to(folder.path() / "none" / "a"), HasSubstr("make the folder"));
  EXPECT_THAT(write_to(folder.path() / "file" / "a"), HasSubstr("is a file"));
  EXPECT_THAT(write_to(folder.path() / "sub"), HasSubstr("a folder has that name"));
  EXPECT_THAT(write_to(folder.path() / std::string(300, 'n')), HasSubstr("shorter"));
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre("file", "sub"));
}

TEST(AtomicFile, WhatDeadWritersLeftIsRemoved) {
  const TemporaryFolder folder;
  for (const char* name : {"file", ".tmp-file-1-0", ".hidden"})
    write_file_atomically(folder.path() / name, "x");
  make_folder(folder.path() / ".tmp-folder" / "sub");
  remove_dead_temporaries(folder.path());
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre(".hidden", "file"));
  remove_dead_temporaries(folder.path() / "none");
}

TEST(MakeFolder, MakesParentsAndRefusesAFileInTheWay) {
  const TemporaryFolder folder;
  make_folder(folder.path() / "a" / "b");
  make_folder(folder.path() / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "a" / "b"));
  write_file_atomically(folder.path() / "file", "x");
  for (const char* name : {"file", "file/below"}) {
    const Error error = error_of([&] { make_folder(folder.path() / name); });
    EXPECT_EQ(error.cause(), Error::Cause::kInput);
    EXPECT_THAT(error.hint(), HasSubstr("is a file"));
  }
}

}  // namespace
}  // namespace starling
