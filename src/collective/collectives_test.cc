// Every collective over every fabric, world and length, against the tree over all shards.
#include "collective/collectives.h"

#include <gtest/gtest.h>

#include <atomic>

#include "collective/collective_testing.h"
#include "fabric/fabric_testing.h"
#include "starling/error.h"

namespace starling {
namespace {

struct Case {
  TestedFabric fabric;
  int world;
  size_t length;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.fabric << ", " << c.world << " ranks, " << c.length << " elements";
}

class CollectivesTest : public testing::TestWithParam<Case> {
 protected:
  size_t world() const { return static_cast<size_t>(GetParam().world); }
  size_t length() const { return GetParam().length; }
  // Chunks so small that every case with more than a few elements has several, and the default.
  std::vector<size_t> chunk_sizes() const {
    return length() > 10000 ? std::vector<size_t>{20 << 10, 256 << 10}
                            : std::vector<size_t>{64, 256 << 10};
  }
  void run(const std::function<void(Fabric&)>& body) {
    run_ranks(GetParam().fabric, GetParam().world, body);
  }
  // Several ways to place shards on this world: aligned where it can be, uneven, some empty.
  std::vector<Placement> placements() const {
    return {Placement::even(16, world()), Placement(random_split(11, world(), 5)),
            Placement::of_batch(place_shards(16, world()), 3)};
  }
};

std::string case_name(const testing::TestParamInfo<Case>& test) {
  return name_of(test.param.fabric) + "World" + std::to_string(test.param.world) + "Length" +
         std::to_string(test.param.length);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const TestedFabric fabric : {TestedFabric::kSim, TestedFabric::kShm, TestedFabric::kTcp}) {
    for (const int world : {1, 2, 3, 4, 7, 8}) {
      for (const size_t length : {0u, 1u, 1009u, 50000u}) cases.push_back({fabric, world, length});
    }
  }
  for (const int world : {2, 3}) cases.push_back({TestedFabric::kPacedTcp, world, 50000});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesTest, testing::ValuesIn(all_cases()), case_name);

TEST_P(CollectivesTest, AllReduceHasTheTreesBits) {
  for (const Placement& placement : placements()) {
    const SharedSum sum(placement, length(), 7);
    for (const auto algorithm :
         {AllReduceAlgorithm::kDirect, AllReduceAlgorithm::kHalvingDoubling}) {
      if (!can_use(algorithm, placement, true)) continue;
      for (const size_t chunk : chunk_sizes()) {
        run([&](Fabric& fabric) {
          Collectives all(fabric, sum.placement, {.chunk_bytes = chunk});
          std::vector<float> out(length(), -1.0f);
          const auto own = sum.of(fabric.rank());
          const Status status = all.wait(all.all_reduce(pointers(own), out, algorithm));
          ASSERT_TRUE(status) << status.failure().message;
          EXPECT_TRUE(out == sum.expected) << name_of(algorithm) << ", rank " << fabric.rank();
        });
      }
    }
  }
}

TEST_P(CollectivesTest, AllReduceMayBeInPlaceOfAnyPartial) {
  for (const Placement& placement : placements()) {
    const SharedSum sum(placement, length(), 8);
    for (const auto algorithm :
         {AllReduceAlgorithm::kDirect, AllReduceAlgorithm::kHalvingDoubling}) {
      if (!can_use(algorithm, placement, true)) continue;
      run([&](Fabric& fabric) {
        Collectives all(fabric, sum.placement, {.chunk_bytes = chunk_sizes()[0]});
        auto own = sum.of(fabric.rank());
        std::vector<float> none(length());
        std::vector<float>& out = own.empty() ? none : own.back();
        const Status status = all.wait(all.all_reduce(pointers(own), out, algorithm));
        ASSERT_TRUE(status) << status.failure().message;
        EXPECT_TRUE(out == sum.expected) << name_of(algorithm) << ", rank " << fabric.rank();
      });
    }
  }
}

TEST_P(CollectivesTest, TheRingSumsInAnotherOrderButAlikeOnAllRanks) {
  const SharedSum sum(Placement(random_split(11, world(), 5)), length(), 9);
  std::vector<std::vector<float>> outs(world(), std::vector<float>(length(), -1.0f));
  run([&](Fabric& fabric) {
    Collectives all(fabric, sum.placement, {.exact = false, .chunk_bytes = chunk_sizes()[0]});
    const auto own = sum.of(fabric.rank());
    auto& out = outs[static_cast<size_t>(fabric.rank())];
    const Status status = all.wait(all.all_reduce(pointers(own), out, AllReduceAlgorithm::kRing));
    ASSERT_TRUE(status) << status.failure().message;
  });
  for (const auto& out : outs) {
    EXPECT_TRUE(out == outs[0]);
    for (size_t i = 0; i < length(); ++i) ASSERT_NEAR(out[i], sum.expected[i], 1e-5);
  }
}

TEST_P(CollectivesTest, ReduceScatterThenAllGatherIsAllReduce) {
  for (const Placement& placement : placements()) {
    const SharedSum sum(placement, length(), 10);
    run([&](Fabric& fabric) {
      Collectives all(fabric, sum.placement, {.chunk_bytes = chunk_sizes()[0]});
      const auto own = sum.of(fabric.rank());
      std::vector<float> out(length(), -1.0f);
      const Span at = all.slice_of(length(), fabric.rank());
      const std::span<float> slice = std::span(out).subspan(at.begin, at.size());
      const Status scattered = all.wait(all.reduce_scatter(pointers(own), length(), slice));
      ASSERT_TRUE(scattered) << scattered.failure().message;
      EXPECT_TRUE(std::equal(slice.begin(), slice.end(),
                             sum.expected.begin() + static_cast<ptrdiff_t>(at.begin)));
      const Status gathered = all.wait(all.all_gather(out));
      ASSERT_TRUE(gathered) << gathered.failure().message;
      EXPECT_TRUE(out == sum.expected);
    });
  }
}

TEST_P(CollectivesTest, BroadcastGivesAllTheRootsBytes) {
  const auto placement = std::make_shared<Placement>(Placement::even(16, world()));
  run([&](Fabric& fabric) {
    Collectives all(fabric, placement, {.chunk_bytes = chunk_sizes()[0]});
    for (int root = 0; root < fabric.world(); ++root) {
      const auto expected = pattern(length() * 3 + 1, static_cast<uint64_t>(root));
      std::vector<std::byte> bytes(expected.size());
      if (fabric.rank() == root) bytes = expected;
      const Status status = all.wait(all.broadcast(root, bytes));
      ASSERT_TRUE(status) << status.failure().message;
      EXPECT_TRUE(bytes == expected) << "root " << root << ", rank " << fabric.rank();
    }
  });
}

// Rank r has length · (r + 1) / 2 bytes: uneven, and perhaps none.
std::vector<size_t> uneven_cuts(size_t world, size_t length) {
  std::vector<size_t> cuts = {0};
  for (size_t r = 0; r < world; ++r) cuts.push_back(cuts.back() + length * (r + 1) / 2);
  return cuts;
}

TEST_P(CollectivesTest, GatherAndAllGatherJoinUnevenParts) {
  const auto placement = std::make_shared<Placement>(Placement::even(16, world()));
  const std::vector<size_t> cuts = uneven_cuts(world(), length());
  const auto expected = pattern(cuts.back(), 3);
  run([&](Fabric& fabric) {
    Collectives all(fabric, placement, {.chunk_bytes = chunk_sizes()[0]});
    const size_t r = static_cast<size_t>(fabric.rank());
    const std::vector<std::byte> own(expected.begin() + static_cast<ptrdiff_t>(cuts[r]),
                                     expected.begin() + static_cast<ptrdiff_t>(cuts[r + 1]));
    for (const int root : {0, fabric.world() - 1}) {
      std::vector<std::byte> bytes(fabric.rank() == root ? cuts.back() : 0);
      const Status status = all.wait(all.gather(root, own, bytes, cuts));
      ASSERT_TRUE(status) << status.failure().message;
      EXPECT_TRUE(fabric.rank() != root || bytes == expected) << "root " << root;
    }
    std::vector<std::byte> bytes(cuts.back());
    std::copy(own.begin(), own.end(), bytes.begin() + static_cast<ptrdiff_t>(cuts[r]));
    const Status status = all.wait(all.all_gather(bytes, cuts));
    ASSERT_TRUE(status) << status.failure().message;
    EXPECT_TRUE(bytes == expected);
  });
}

TEST_P(CollectivesTest, ReduceScatterToUnevenSlicesSumsExactly) {
  const SharedSum sum(Placement::even(16, world()), length(), 5);
  std::vector<size_t> cuts(world(), 0);  // all but the last have a share that grows, or none
  for (size_t r = 1; r < world(); ++r) cuts[r] = length() * r * (r - 1) / (world() * world());
  cuts.push_back(length());
  run([&](Fabric& fabric) {
    Collectives all(fabric, sum.placement, {.chunk_bytes = chunk_sizes()[0]});
    const auto own = sum.of(fabric.rank());
    const size_t r = static_cast<size_t>(fabric.rank());
    std::vector<float> slice(cuts[r + 1] - cuts[r], -1.0f);
    const Status status = all.wait(all.reduce_scatter(pointers(own), cuts, slice));
    ASSERT_TRUE(status) << status.failure().message;
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(),
                           sum.expected.begin() + static_cast<ptrdiff_t>(cuts[r])));
  });
}

TEST_P(CollectivesTest, ShiftGivesEachTheBytesOfTheOneBefore) {
  const auto placement = std::make_shared<Placement>(Placement::even(16, world()));
  run([&](Fabric& fabric) {
    Collectives all(fabric, placement, {.chunk_bytes = chunk_sizes()[0]});
    const auto bytes_of = [&](size_t rank) { return pattern(length() * (rank + 1) / 2, rank); };
    const size_t r = static_cast<size_t>(fabric.rank());
    const auto own = bytes_of(r);
    const auto expected =
        world() == 1 ? std::vector<std::byte>() : bytes_of((r + world() - 1) % world());
    std::vector<std::byte> before(expected.size());
    const Status status = all.wait(all.shift(own, before));
    ASSERT_TRUE(status) << status.failure().message;
    EXPECT_TRUE(before == expected);
  });
}

TEST_P(CollectivesTest, ShiftInARingOfSomeLeavesOutTheOthers) {
  const auto placement = std::make_shared<Placement>(Placement::even(16, world()));
  std::vector<int> ring;  // every second, the last first
  for (int r = static_cast<int>(world()) - 1; r >= 0; r -= 2) ring.push_back(r);
  run([&](Fabric& fabric) {
    Collectives all(fabric, placement, {.chunk_bytes = chunk_sizes()[0]});
    const auto own = pattern(length(), static_cast<size_t>(fabric.rank()));
    const auto at = std::find(ring.begin(), ring.end(), fabric.rank());
    const bool takes_part = at != ring.end() && ring.size() > 1;
    const int from = !takes_part ? -1 : at == ring.begin() ? ring.back() : *(at - 1);
    const auto expected =
        takes_part ? pattern(length(), static_cast<size_t>(from)) : std::vector<std::byte>();
    std::vector<std::byte> before(expected.size());
    const Status status = all.wait(all.shift(own, before, ring));
    ASSERT_TRUE(status) << status.failure().message;
    EXPECT_TRUE(before == expected);
  });
}

TEST_P(CollectivesTest, SeveralInFlightEndInAnyOrder) {
  constexpr size_t kCount = 5;
  std::vector<SharedSum> sums;
  for (size_t k = 0; k < kCount; ++k) {
    sums.emplace_back(Placement::even(16, world()), length() >> k, 20 + k);
  }
  run([&](Fabric& fabric) {
    Collectives all(fabric, sums[0].placement, {.chunk_bytes = chunk_sizes()[0]});
    std::vector<std::vector<float>> outs;
    std::vector<std::vector<std::vector<float>>> own;
    for (const SharedSum& sum : sums) {
      outs.emplace_back(sum.length(), -1.0f);
      own.push_back(sum.of(fabric.rank()));
    }
    std::vector<Collectives::Handle> handles;
    for (size_t k = 0; k < kCount; ++k) {
      handles.push_back(all.all_reduce(pointers(own[k]), outs[k]));
    }
    const auto barrier = all.barrier();
    // Each rank waits in an order of its own.
    for (size_t k = 0; k < kCount; ++k) {
      const size_t which = (k * 2 + static_cast<size_t>(fabric.rank())) % kCount;
      const Status status = all.wait(handles[which]);
      ASSERT_TRUE(status) << status.failure().message;
      EXPECT_TRUE(outs[which] == sums[which].expected);
    }
    const Status status = all.wait(barrier);
    ASSERT_TRUE(status) << status.failure().message;
  });
}

TEST_P(CollectivesTest, NobodyLeavesABarrierBeforeAllHaveEntered) {
  const auto placement = std::make_shared<Placement>(Placement::even(16, world()));
  std::atomic<int> entered{0};
  run([&](Fabric& fabric) {
    Collectives all(fabric, placement);
    for (int round = 1; round <= 3; ++round) {
      ++entered;
      const Status status = all.wait(all.barrier());
      ASSERT_TRUE(status) << status.failure().message;
      EXPECT_GE(entered.load(), round * fabric.world());
    }
  });
}

// A test that passes whatever is summed tests nothing: two leaves of different parents exchanged
// must give other bits, by every algorithm.
TEST_P(CollectivesTest, ExchangedShardsHaveOtherBits) {
  if (length() < 1000) return;
  auto leaves = random_leaves(16, length(), 7);
  const SharedSum right(Placement::even(16, world()), leaves, length());
  std::swap(leaves[1], leaves[2]);
  const SharedSum wrong(Placement::even(16, world()), leaves, length());
  for (const auto algorithm : {AllReduceAlgorithm::kDirect, AllReduceAlgorithm::kHalvingDoubling}) {
    if (!can_use(algorithm, *right.placement, true)) continue;
    run([&](Fabric& fabric) {
      Collectives all(fabric, wrong.placement);
      std::vector<float> out(length());
      const auto own = wrong.of(fabric.rank());
      const Status status = all.wait(all.all_reduce(pointers(own), out, algorithm));
      ASSERT_TRUE(status) << status.failure().message;
      EXPECT_TRUE(out != right.expected) << name_of(algorithm);
    });
  }
}

// A farewell comes from the network: one that makes no sense breaks the communicator, nothing else.
TEST(Collectives, AFarewellThatCannotBeReadNamesItsSender) {
  const Tag farewell = Tag{1} << 56 | Tag{0xFFFFFFFF} << 24;
  for (const auto& bytes : {std::vector<std::byte>{}, std::vector<std::byte>(5, std::byte{0xFF}),
                            std::vector<std::byte>(5000, std::byte{1})}) {
    run_ranks(TestedFabric::kSim, 2, [&](Fabric& fabric) {
      if (fabric.rank() == 1) {
        EXPECT_TRUE(send(fabric, 0, farewell, bytes, soon(fabric)));
        return;
      }
      Collectives all(fabric, std::make_shared<Placement>(Placement::even(4, 2)));
      const Status status = all.wait(all.barrier());
      ASSERT_FALSE(status);
      EXPECT_EQ(status.failure().peer, 1) << status.failure().message;
    });
  }
}

TEST(Collectives, RefusesWhatDoesNotFit) {
  run_ranks(TestedFabric::kSim, 1, [&](Fabric& fabric) {
    const auto placement = std::make_shared<Placement>(Placement::even(4, 1));
    EXPECT_THROW(Collectives(fabric, std::make_shared<Placement>(Placement::even(4, 2))), Error);
    EXPECT_THROW(Collectives(fabric, placement, {.chunk_bytes = 6}), Error);
    EXPECT_THROW(Collectives(fabric, placement, {.window = 0}), Error);
    Collectives all(fabric, placement);
    std::vector<float> out(8);
    std::vector<std::byte> bytes(8);
    const std::vector<const float*> own = {out.data()}, two = {out.data(), out.data()};
    EXPECT_THROW(all.all_reduce(two, out), Error);
    EXPECT_THROW(all.all_reduce(own, out, AllReduceAlgorithm::kRing),
                 Error);  // a ring, where bits must be exact
    EXPECT_THROW(all.reduce_scatter(own, 9, out), Error);
    EXPECT_THROW(all.all_gather(bytes, {0, 9}), Error);
    EXPECT_THROW(all.all_gather(bytes, {0, 4, 8}), Error);
    EXPECT_THROW(all.gather(0, bytes, bytes, {0, 7}), Error);
    const auto handle = all.barrier();
    EXPECT_TRUE(all.wait(handle));
    EXPECT_THROW((void)all.wait(handle), std::logic_error);
  });
}

}  // namespace
}  // namespace starling
