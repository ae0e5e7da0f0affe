// Shared segments: memory without a name, all there from the start, refused in words when there is
// no room.
#include "fabric/shm/shared_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

using testing::HasSubstr;

TEST(SharedSegment, IsTheSameMemoryWhereverItIsMapped) {
  const SharedSegment one = SharedSegment::create("test", 10'000);
  const SharedSegment other = SharedSegment::map(one.fd());
  ASSERT_EQ(other.bytes().size(), 10'000u);
  EXPECT_NE(one.bytes().data(), other.bytes().data());
  EXPECT_EQ(other.bytes()[9'999], std::byte{0});
  one.bytes()[9'999] = std::byte{7};
  EXPECT_EQ(other.bytes()[9'999], std::byte{7});
}

TEST(SharedSegment, IsSharedWithAChildAndCannotBeCutShort) {
  const SharedSegment segment = SharedSegment::create("test", 4096);
  const pid_t child = fork();
  if (child == 0) {
    const SharedSegment mapped = SharedSegment::map(segment.fd());
    mapped.bytes()[5] = std::byte{42};
    _exit(ftruncate(mapped.fd(), 0) == -1 && errno == EPERM ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(segment.bytes()[5], std::byte{42});
}

// Whether the kernel makes huge pages of it is the kernel's affair.
TEST(SharedSegment, LargeOnesAreReadyForHugePages) {
  constexpr size_t kBytes = (size_t{5} << 20) + 100, kHugePage = size_t{2} << 20;
  const SharedSegment one = SharedSegment::create("test", kBytes);
  const SharedSegment other = SharedSegment::map(one.fd());
  for (const SharedSegment* segment : {&one, &other}) {
    ASSERT_EQ(segment->bytes().size(), kBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->bytes().data()) % kHugePage, 0u);
  }
  struct stat status {};
  ASSERT_EQ(fstat(one.fd(), &status), 0);
  EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, kBytes) << "all pages are there";
  for (const std::byte byte : other.bytes()) ASSERT_EQ(byte, std::byte{0});
  for (size_t i = 0; i < kBytes; i += 1000) one.bytes()[i] = static_cast<std::byte>(i / 1000);
  for (size_t i = 0; i < kBytes; i += 1000)
    ASSERT_EQ(other.bytes()[i], static_cast<std::byte>(i / 1000)) << i;
}

TEST(SharedSegment, KnowsWhatLiesInIt) {
  const SharedSegment segment = SharedSegment::create("test", 1000);
  const std::byte* data = segment.bytes().data();
  EXPECT_EQ(segment.offset_of(data, 1000), 0u);
  EXPECT_EQ(segment.offset_of(data + 990, 10), 990u);
  EXPECT_EQ(segment.offset_of(data + 990, 11), std::nullopt);
  EXPECT_EQ(segment.offset_of(&segment, 1), std::nullopt);
  EXPECT_EQ(segment.offset_of(data, SIZE_MAX), std::nullopt);
  const RankRegions regions{segment.bytes(), 100};
  EXPECT_EQ(regions.at(3, 7), data + 307);
  EXPECT_EQ(regions.of(9).size(), 100u);
}

TEST(SharedSegment, ClosesOnExecUnlessItIsKept) {
  const SharedSegment segment = SharedSegment::create("test", 1);
  EXPECT_EQ(fcntl(segment.fd(), F_GETFD), FD_CLOEXEC);
  segment.keep_on_exec();
  EXPECT_EQ(fcntl(segment.fd(), F_GETFD), 0);
}

TEST(SharedSegment, SaysWhenAFileMayNotBeThatLarge) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      SharedSegment::create("test", 2 << 20);
    } catch (const Error& error) {
      const bool told = std::strstr(error.what(), "files are limited to 1048576 bytes") &&
                        std::strstr(error.hint().c_str(), "ulimit -f");
      _exit(told ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedSegment, SaysWhenThereIsNoMemory) {
  try {
    SharedSegment::create("test", size_t{1} << 50);
    FAIL() << "a petabyte was to be had";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no room for 1073741824.0 MiB of shared memory"));
    EXPECT_THAT(error.what(), HasSubstr("MiB of memory are free"));
    EXPECT_THAT(error.hint(), HasSubstr("fewer workers"));
  }
}

TEST(SharedSegment, RefusesOtherDescriptors) {
  EXPECT_THROW(SharedSegment::map(-1), Error);
  EXPECT_THROW(SharedSegment::map(STDERR_FILENO), Error);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_THROW(SharedSegment::map(unsealed), Error) << "it could be cut short";
  close(unsealed);
}

}  // namespace
}  // namespace starling
