#include "collective/bare_sum.h"

#include <gtest/gtest.h>

#include "fabric/fabric_testing.h"

namespace starling {
namespace {

TEST(BareSum, IsTheSumInEveryArray) {
  for (const int world : {2, 3}) {
    for (const size_t length : {1u, 1009u}) {
      const auto ranks = static_cast<size_t>(world);
      std::vector<std::vector<float>> arrays(ranks, std::vector<float>(length));
      std::vector<float*> at;
      for (auto& array : arrays) at.push_back(array.data());
      const Placement placement = Placement::even(ranks, ranks);
      const SharedSegment memory = SharedSegment::create("test", BareSum::bytes(world));
      const SharedSegment segment = ShmFabric::make_segment({.world = world});
      run_threads(world, [&](int rank) {
        ShmFabric fabric(segment.fd(), rank);
        BareSum bare(fabric.roster(), memory.bytes(), placement);
        auto& own = arrays[static_cast<size_t>(rank)];
        std::fill(own.begin(), own.end(), static_cast<float>(rank + 1));
        const Status status = bare.run(at, length, soon(fabric));
        ASSERT_TRUE(status) << status.failure().message;
        EXPECT_EQ(own, std::vector<float>(length, static_cast<float>(world * (world + 1) / 2)));
      });
    }
  }
}

TEST(BareSum, ARankThatNeverComesIsFoundByTheDeadline) {
  const SharedSegment memory = SharedSegment::create("test", BareSum::bytes(2));
  const SharedSegment segment = ShmFabric::make_segment({.world = 2});
  const Placement placement = Placement::even(2, 2);
  ShmFabric fabric(segment.fd(), 0);
  BareSum bare(fabric.roster(), memory.bytes(), placement);
  float a = 1, b = 2;
  const std::vector<float*> arrays = {&a, &b};
  const Status status = bare.run(arrays, 1, fabric.now() + std::chrono::milliseconds(5));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.failure().kind, FailureKind::kDeadline);
  EXPECT_EQ(status.failure().peer, 1);
}

}  // namespace
}  // namespace starling
