#include "collective/all_reduce_shared.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/collective_testing.h"
#include "fabric/fabric_testing.h"

namespace starling {
namespace {

// A segment in which every partial of a sum has its place, then one result, then the barriers.
class SharedMemory {
 public:
  SharedMemory(const SharedSum& sum, int world, size_t objects = 1)
      : stride_((sum.length() + 1023) / 1024 * 1024),
        barrier_bytes_(SharedAllReduce::bytes(world)),
        segment_(SharedSegment::create(
            "test", (sum.parts.size() + 1) * stride_ * sizeof(float) + objects * barrier_bytes_)),
        barriers_((sum.parts.size() + 1) * stride_ * sizeof(float)) {
    for (size_t k = 0; k < sum.parts.size(); ++k) {
      std::copy(sum.parts[k].begin(), sum.parts[k].end(), array(k));
      partials_.push_back(array(k));
    }
  }
  float* array(size_t k) const {
    return reinterpret_cast<float*>(segment_.bytes().data()) + k * stride_;
  }
  float* result() const { return array(partials_.size()); }
  std::span<const float* const> partials() const { return partials_; }
  std::span<std::byte> barrier(size_t object) const {
    return segment_.bytes().subspan(barriers_ + object * barrier_bytes_, barrier_bytes_);
  }

 private:
  size_t stride_, barrier_bytes_;
  SharedSegment segment_;
  size_t barriers_;
  std::vector<const float*> partials_;
};

void run_world(int world, const std::function<void(ShmFabric&)>& body) {
  const SharedSegment segment = ShmFabric::make_segment({.world = world});
  run_threads(world, [&](int rank) {
    ShmFabric fabric(segment.fd(), rank);
    body(fabric);
  });
}

struct SharedCase {
  int world;
  size_t length;
};
void PrintTo(const SharedCase& c, std::ostream* out) {
  *out << c.world << " ranks, " << c.length << " elements";
}

class SharedAllReduceTest : public testing::TestWithParam<SharedCase> {
 protected:
  size_t world() const { return static_cast<size_t>(GetParam().world); }
  std::vector<Placement> placements() const {
    return {Placement::even(16, world()), Placement(random_split(11, world(), 5)),
            Placement::of_batch(place_shards(16, world()), 3)};
  }
};

INSTANTIATE_TEST_SUITE_P(All, SharedAllReduceTest, testing::ValuesIn([] {
                           std::vector<SharedCase> cases;
                           for (const int world : {1, 2, 3, 4, 7, 8}) {
                             for (const size_t length : {0u, 1u, 1009u, 300000u})
                               cases.push_back({world, length});
                           }
                           return cases;
                         }()),
                         [](const auto& test) {
                           return "World" + std::to_string(test.param.world) + "Length" +
                                  std::to_string(test.param.length);
                         });

TEST_P(SharedAllReduceTest, OneSharedResultHasTheTreesBits) {
  for (const Placement& placement : placements()) {
    const SharedSum sum(placement, GetParam().length, 3);
    const SharedMemory memory(sum, GetParam().world);
    float* const out = memory.result();
    run_world(GetParam().world, [&](ShmFabric& fabric) {
      SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
      for (int round = 0; round < 3; ++round) {
        reduce.start({sum.placement.get(), sum.length(), memory.partials(), {&out, 1}});
        const Status status = reduce.wait(soon(fabric));
        ASSERT_TRUE(status) << status.failure().message;
        EXPECT_TRUE(std::equal(sum.expected.begin(), sum.expected.end(), out));
      }
    });
  }
}

TEST_P(SharedAllReduceTest, EveryRanksOwnArrayHasTheTreesBits) {
  for (const Placement& placement : placements()) {
    const SharedSum sum(placement, GetParam().length, 4);
    const SharedMemory memory(sum, GetParam().world);
    // In place: the last partial of each rank that has one.
    std::vector<float*> outs;
    for (int rank = 0; rank < GetParam().world; ++rank) {
      if (sum.count(rank) > 0) outs.push_back(memory.array(sum.first(rank) + sum.count(rank) - 1));
    }
    run_world(GetParam().world, [&](ShmFabric& fabric) {
      SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
      reduce.start({sum.placement.get(), sum.length(), memory.partials(), outs});
      const Status status = reduce.wait(soon(fabric));
      ASSERT_TRUE(status) << status.failure().message;
    });
    for (const float* out : outs) {
      EXPECT_TRUE(std::equal(sum.expected.begin(), sum.expected.end(), out));
    }
  }
}

// Slots are used again every second time, and a rank may be one time ahead of another.
TEST(SharedAllReduce, ShortAndLongOnesFollowEachOther) {
  constexpr int kWorld = 3;
  constexpr size_t kLength = 300;
  const SharedSum sum(Placement::even(kWorld, kWorld), kLength, 8);
  const SharedMemory memory(sum, kWorld);
  std::vector<float*> arrays;
  for (size_t rank = 0; rank < kWorld; ++rank) arrays.push_back(memory.array(rank));
  run_world(kWorld, [&](ShmFabric& fabric) {
    const int rank = fabric.rank();
    SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
    for (int round = 0; round < 2000; ++round) {
      const size_t length = round % 7 == 3 ? kLength : 1 + static_cast<size_t>(round) % 64;
      float* const own = memory.array(static_cast<size_t>(rank));
      for (size_t i = 0; i < length; ++i) own[i] = static_cast<float>(rank + round + 1);
      reduce.start({sum.placement.get(), length, memory.partials(), arrays});
      const Status status = reduce.wait(soon(fabric));
      ASSERT_TRUE(status) << status.failure().message;
      const float expected = static_cast<float>(3 * round + 6);
      ASSERT_TRUE(std::all_of(own, own + length, [&](float x) { return x == expected; })) << round;
    }
  });
}

TEST(SharedAllReduce, SeveralAtOnceEndInAnyOrder) {
  constexpr int kWorld = 3;
  constexpr size_t kObjects = 4;
  const SharedSum sum(Placement::even(8, kWorld), 5000, 6);
  const SharedMemory memory(sum, kWorld, kObjects);
  std::vector<std::vector<float>> results(kObjects, std::vector<float>(sum.length()));
  run_world(kWorld, [&](ShmFabric& fabric) {
    std::vector<std::unique_ptr<SharedAllReduce>> reduces;
    std::vector<float*> outs;
    for (size_t k = 0; k < kObjects; ++k) {
      outs.push_back(results[k].data());
      reduces.push_back(
          std::make_unique<SharedAllReduce>(fabric.roster(), memory.barrier(k), fabric.spin()));
    }
    for (size_t k = 0; k < kObjects; ++k) {
      reduces[k]->start({sum.placement.get(), sum.length(), memory.partials(), {&outs[k], 1}});
    }
    // A rank that waits for the last must not keep the others from the first: all are advanced.
    for (size_t over = 0; over < kObjects;) {
      over = 0;
      for (const auto& reduce : reduces) over += reduce->advance();
      std::this_thread::yield();
    }
  });
  for (const auto& result : results) EXPECT_TRUE(result == sum.expected);
}

TEST(SharedAllReduce, SharesCoverAllAndBeginOnLinesOrPages) {
  for (const size_t length : {0u, 1u, 17u, 1000u, 100000u, 10000019u}) {
    for (const int world : {1, 2, 3, 8}) {
      size_t end = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Span share = SharedAllReduce::share_of(length, world, rank);
        EXPECT_EQ(share.begin, end);
        end = share.end;
        const size_t unit = length > 10000000 ? 1024 : 16;
        EXPECT_TRUE(share.begin % unit == 0 || share.begin == length) << length << " " << world;
      }
      EXPECT_EQ(end, length);
    }
  }
}

// A process of its own that enters the world as rank 1 and dies there, before it starts or after.
void die_as_rank_1(const SharedSegment& world, const SharedSum& sum, const SharedMemory& memory,
                   bool started) {
  ShmFabric fabric(world.fd(), 1);
  SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
  float* const out = memory.result();
  if (started) reduce.start({sum.placement.get(), sum.length(), memory.partials(), {&out, 1}});
  raise(SIGKILL);
}

TEST(SharedAllReduce, ARankThatDiesBeforeAShortOneIsNamed) {
  const SharedSum sum(Placement::even(2, 2), 2, 7);
  const SharedMemory memory(sum, 2);
  const SharedSegment world = ShmFabric::make_segment({.world = 2});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) die_as_rank_1(world, sum, memory, false);
  ShmFabric fabric(world.fd(), 0);
  SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
  const std::vector<float*> arrays = {memory.array(0), memory.array(1)};
  reduce.start({sum.placement.get(), sum.length(), memory.partials(), arrays});
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const Status result = reduce.wait(soon(fabric));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, FailureKind::kPeerGone);
  EXPECT_NE(result.failure().message.find("all_reduce_shared step=1 rank=0: peer 1 is gone"),
            std::string::npos)
      << result.failure().message;
}

TEST(SharedAllReduce, AKilledRankIsNamed) {
  for (const bool started : {false, true}) {
    const SharedSum sum(Placement::even(2, 2), 1000, 7);
    const SharedMemory memory(sum, 2);
    const SharedSegment world = ShmFabric::make_segment({.world = 2});
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) die_as_rank_1(world, sum, memory, started);
    ShmFabric fabric(world.fd(), 0);
    SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
    float* const out = memory.result();
    reduce.start({sum.placement.get(), sum.length(), memory.partials(), {&out, 1}});
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const Status result = reduce.wait(soon(fabric));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().kind, FailureKind::kPeerGone);
    EXPECT_EQ(result.failure().peer, 1);
    const std::string step = started ? "step=2" : "step=1";
    EXPECT_NE(result.failure().message.find("all_reduce_shared " + step + " rank=0: peer 1"),
              std::string::npos)
        << result.failure().message;
  }
}

TEST(SharedAllReduce, ARankThatNeverComesIsFoundByTheDeadline) {
  const SharedSum sum(Placement::even(2, 2), 10, 7);
  const SharedMemory memory(sum, 2);
  float* const out = memory.result();
  run_world(2, [&](ShmFabric& fabric) {
    if (fabric.rank() == 1) {
      // Stays in the world until the other has given up, and says so.
      EXPECT_TRUE(fabric.barrier().pass(soon(fabric)));
      return;
    }
    SharedAllReduce reduce(fabric.roster(), memory.barrier(0), fabric.spin());
    reduce.start({sum.placement.get(), sum.length(), memory.partials(), {&out, 1}});
    const Status status = reduce.wait(fabric.now() + std::chrono::milliseconds(5));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.failure().kind, FailureKind::kDeadline) << status.failure().message;
    EXPECT_EQ(status.failure().peer, 1);
    EXPECT_TRUE(fabric.barrier().pass(soon(fabric)));
  });
}

}  // namespace
}  // namespace starling
