// What shared memory has beyond the suite: barriers, messages in place, the roster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "fabric/fabric_testing.h"
#include "starling/error.h"

namespace starling {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::HasSubstr;

class ShmBarriers : public testing::TestWithParam<int> {};

TEST_P(ShmBarriers, NobodyPassesBeforeAllHaveCome) {
  const int world = GetParam();
  const SharedSegment segment = ShmFabric::make_segment({.world = world});
  std::atomic<int> here = 0;
  run_threads(world, [&](int rank) {
    ShmFabric fabric(segment, rank);
    ShmBarrier& barrier = fabric.barrier();
    for (int round = 1; round <= 300; ++round) {
      here += 1;
      const Status in = barrier.pass(soon(fabric));
      ASSERT_TRUE(in.ok()) << in.failure().message;
      ASSERT_EQ(here, world * round);
      ASSERT_TRUE(barrier.pass(soon(fabric)).ok());
    }
    EXPECT_EQ(barrier.arrived(rank), 600u);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmBarriers, testing::Values(1, 2, 3, 4, 7, 8));

TEST(ShmBarrier, IsAskedWithoutWaiting) {
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  ShmFabric a(segment, 0), b(segment, 1);
  EXPECT_EQ(a.barrier().arrive(), 1u);
  EXPECT_FALSE(a.barrier().all_arrived(1));
  EXPECT_TRUE(b.barrier().wait_for(0, 1, soon(b)).ok());
  b.barrier().arrive();
  EXPECT_TRUE(a.barrier().all_arrived(1));
  EXPECT_TRUE(a.barrier().wait_for_all(1, a.now()).ok());
}

TEST(ShmBarrier, HasADeadline) {
  const SharedSegment segment = ShmFabric::make_segment({.world = 3});
  ShmFabric fabric(segment.fd(), 1);
  const Status status = fabric.barrier().pass(fabric.now() + milliseconds(3));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().kind, FailureKind::kDeadline);
  EXPECT_EQ(status.failure().peer, 0);
  EXPECT_THAT(status.failure().message, HasSubstr("barrier rank=1 count=1: peer 0 has not come"));
}

TEST(ShmBarrier, NamesWhoIsGoneButCountsWhoHadCome) {
  const SharedSegment segment = ShmFabric::make_segment({.world = 3});
  ShmFabric fabric(segment.fd(), 0);
  {
    ShmFabric early(segment.fd(), 1);
    early.barrier().arrive();
    const ShmFabric never(segment.fd(), 2);
  }
  const uint64_t count = fabric.barrier().arrive();
  EXPECT_TRUE(fabric.barrier().wait_for(1, count, soon(fabric)).ok()) << "it had come";
  const Status status = fabric.barrier().wait_for_all(count, soon(fabric));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().kind, FailureKind::kPeerGone);
  EXPECT_EQ(status.failure().peer, 2);
}

TEST(ShmBarrier, StandsInASegmentOfTheCallers) {
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  const SharedSegment memory = SharedSegment::create("barriers", 2 * ShmBarrier::bytes(2));
  run_threads(2, [&](int rank) {
    ShmFabric fabric(segment, rank, {.spin = nanoseconds(0)});
    ShmBarrier second(fabric.roster(), memory.bytes().subspan(ShmBarrier::bytes(2)), fabric.spin());
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(second.pass(soon(fabric)).ok());
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
  });
}

TEST(ShmFabric, CopiesLargeMessagesStraightFromWhereTheyLie) {
  constexpr size_t kBytes = 5 << 20;
  const SharedSegment segment = ShmFabric::make_segment({.world = 2, .ring_bytes = 4096});
  const SharedSegment data = SharedSegment::create("data", 2 * kBytes);
  run_threads(2, [&](int rank) {
    ShmFabric fabric(segment, rank);
    fabric.add_segment(data);
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());  // both have added it
    const RankRegions regions{data.bytes(), kBytes};
    const std::vector<std::byte> expected = pattern(kBytes, 0);
    if (rank == 0) {
      std::memcpy(regions.at(0, 0), expected.data(), kBytes);
      const Ticket ticket = fabric.start_send(1, 1, regions.of(0));
      // Its handle fits into a ring that its bytes do not: it is on its way, but not taken.
      EXPECT_TRUE(fabric.poll(ticket).pending());
      ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
      EXPECT_TRUE(wait(fabric, ticket, soon(fabric)).ok());
      EXPECT_EQ(fabric.counters(1).bytes_sent, kBytes);
    } else {
      ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
      std::vector<std::byte> in(kBytes);
      EXPECT_TRUE(receive(fabric, 0, 1, in, soon(fabric)).ok());
      EXPECT_TRUE(in == expected);
    }
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
  });
}

TEST(ShmFabric, RingsAreShorterTheMoreThereAre) {
  for (const int world : {1, 2, 8, 32}) EXPECT_EQ(ShmFabric::ring_bytes_for(world), 128u << 10);
  EXPECT_EQ(ShmFabric::ring_bytes_for(33), 64u << 10);
  EXPECT_EQ(ShmFabric::ring_bytes_for(64), 32u << 10);
  EXPECT_EQ(ShmFabric::ring_bytes_for(128), 8u << 10);
  for (const int world : {256, 1024, 4096})
    EXPECT_EQ(ShmFabric::ring_bytes_for(world), ShmFabric::kRingBytesLeast);
}

TEST(ShmFabric, MessagesMayBeLongerThanTheShortestRings) {
  const SharedSegment segment =
      ShmFabric::make_segment({.world = 3, .ring_bytes = ShmFabric::kRingBytesLeast});
  run_threads(3, [&](int rank) {
    ShmFabric fabric(segment, rank);
    for (const size_t bytes : {size_t{1}, ShmFabric::kRingBytesLeast - 1,
                               ShmFabric::kRingBytesLeast, size_t{100'003}, size_t{3} << 20}) {
      // All to all at once.
      const std::vector<std::byte> out = pattern(bytes, static_cast<uint64_t>(rank));
      std::vector<std::vector<std::byte>> in(3, std::vector<std::byte>(bytes));
      std::vector<Ticket> tickets;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        tickets.push_back(fabric.start_send(peer, bytes, out));
        tickets.push_back(fabric.start_receive(peer, bytes, in[static_cast<size_t>(peer)]));
      }
      for (const Ticket ticket : tickets) ASSERT_TRUE(wait(fabric, ticket, soon(fabric)).ok());
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        EXPECT_TRUE(in[static_cast<size_t>(peer)] == pattern(bytes, static_cast<uint64_t>(peer)));
      }
    }
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
  });
}

TEST(ShmFabric, WhatIsTakenBackIsNotReceived) {
  constexpr size_t kBytes = 1 << 20;
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  const SharedSegment data = SharedSegment::create("data", kBytes);
  ShmFabric a(segment, 0), b(segment, 1);
  a.add_segment(data);
  b.add_segment(data);
  const Ticket first = a.start_send(1, 1, data.bytes());
  EXPECT_FALSE(b.progress(b.now()));  // its handle has come
  a.cancel(first);
  std::memset(data.bytes().data(), 3, kBytes);
  std::vector<std::byte> in(kBytes);
  const Ticket receiving = b.start_receive(0, 1, in);
  EXPECT_TRUE(b.poll(receiving).pending());
  // More than there are cells, so that they are used again.
  for (int i = 0; i < 200; ++i) a.cancel(a.start_send(1, 2, data.bytes()));
  const Ticket second = a.start_send(1, 1, data.bytes());
  EXPECT_TRUE(wait(b, receiving, soon(b)).ok());
  EXPECT_TRUE(wait(a, second, soon(a)).ok());
  EXPECT_EQ(in.front(), std::byte{3});
  EXPECT_EQ(in.back(), std::byte{3});
}

TEST(ShmFabric, MoreMessagesInPlaceThanCellsGoThroughTheRing) {
  constexpr size_t kBytes = 40'000, kCount = 100;
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  const SharedSegment data = SharedSegment::create("data", kBytes * kCount);
  run_threads(2, [&](int rank) {
    ShmFabric fabric(segment, rank);
    fabric.add_segment(data);
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
    std::vector<Ticket> tickets;
    std::vector<std::vector<std::byte>> in;
    for (size_t i = 0; i < kCount; ++i) {
      const auto part = data.bytes().subspan(i * kBytes, kBytes);
      if (rank == 0) {
        std::memset(part.data(), static_cast<int>(i), kBytes);
        tickets.push_back(fabric.start_send(1, 1, part));
      } else {
        in.emplace_back(kBytes);
        tickets.push_back(fabric.start_receive(0, 1, in.back()));
      }
    }
    for (const Ticket ticket : tickets) ASSERT_TRUE(wait(fabric, ticket, soon(fabric)).ok());
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(in[i].front(), static_cast<std::byte>(i));
      EXPECT_EQ(in[i].back(), static_cast<std::byte>(i));
    }
    ASSERT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
  });
}

TEST(ShmFabric, ARankThatWasMarkedGoneCloses) {
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  ShmFabric a(segment, 0), b(segment, 1);
  const Ticket a_waits = a.start_receive(1, 1, {}), b_waits = b.start_receive(0, 1, {});
  ShmFabric::mark_gone_in(segment, 1);
  EXPECT_TRUE(a.progress(soon(a)));
  EXPECT_EQ(a.poll(a_waits).failure, FailureKind::kPeerGone);
  EXPECT_TRUE(b.progress(soon(b)));
  EXPECT_EQ(b.poll(b_waits).failure, FailureKind::kClosed);
  EXPECT_THROW(ShmFabric(segment.fd(), 1), Error) << "it may not come back";
  EXPECT_THROW(ShmFabric(segment.fd(), 0), Error) << "it is taken";
}

TEST(ShmFabric, RefusesASegmentThatIsNotAWorlds) {
  const SharedSegment other = SharedSegment::create("other", 10'000);
  EXPECT_THROW(ShmFabric(other.fd(), 0), Error);
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  EXPECT_THROW(ShmFabric(segment.fd(), 2), std::logic_error);
  EXPECT_THROW(ShmFabric::make_segment({.world = 2, .ring_bytes = 1000}), std::logic_error);
}

}  // namespace
}  // namespace starling
