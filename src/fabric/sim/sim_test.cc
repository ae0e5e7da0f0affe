// The simulated world: the same run from the same seed, and every fault it can make.
#include "fabric/sim/sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fabric/fabric_testing.h"
#include "fabric/sim/sim_testing.h"

namespace starling {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using End = SimWorld::Outcome::End;

Instant at(std::chrono::nanoseconds since_begin) { return Instant(since_begin); }

// A machine: passes a number on around the ring of ranks, adding one, for some rounds. It ends
// early when a neighbour is gone.
class RingMachine {
 public:
  RingMachine(Fabric& fabric, uint64_t rounds) : fabric_(fabric), rounds_(rounds) {}

  bool advance() {
    const int world = fabric_.world(), rank = fabric_.rank();
    if (rank == 0 && !started_) send_on(world);
    while (true) {
      if (sending_ && !settle(sending_)) return lost_;
      if (turn_ == rounds_) return true;
      if (!receiving_) {
        receiving_ = fabric_.start_receive((rank + world - 1) % world, 1,
                                           std::as_writable_bytes(std::span(&in_, 1)));
      }
      if (!settle(receiving_)) return lost_;
      if (++turn_ < rounds_ || rank != 0) send_on(world);
    }
  }
  uint64_t value() const { return in_; }

 private:
  void send_on(int world) {
    started_ = true;
    out_ = in_ + 1;
    sending_ =
        fabric_.start_send((fabric_.rank() + 1) % world, 1, std::as_bytes(std::span(&out_, 1)));
  }
  // Whether the transfer is done; false while it is pending, and for good when it failed.
  bool settle(Ticket& ticket) {
    const Transfer transfer = fabric_.poll(ticket);
    if (transfer.pending()) {
      fabric_.progress(Instant::max());
      return false;
    }
    ticket = {};
    lost_ = lost_ || transfer.failed();
    return transfer.done();
  }

  Fabric& fabric_;
  const uint64_t rounds_;
  uint64_t turn_ = 0, in_ = 0, out_ = 0;
  bool started_ = false, lost_ = false;
  Ticket sending_, receiving_;
};

// Everyone sends numbered messages to everyone in a world full of faults, for some virtual time.
uint64_t trace_of_a_wild_run(uint64_t seed) {
  SimWorld sim(
      {.world = 4,
       .seed = seed,
       .link = {.drop = 0.1, .duplicate = 0.1, .reorder = true},
       .partitions = {{.from = at(microseconds(100)),
                       .until = at(microseconds(300)),
                       .group = 0b0011}},
       .faults = {{.rank = 3, .at = at(microseconds(400))},
                  {.rank = 2, .operation = 20, .freeze = true, .lasts = microseconds(200)}},
       .end = at(milliseconds(2))});
  sim.run_blocking([&](int, Fabric& fabric) {
    uint64_t number = 0;
    while (true) {
      for (int peer = 0; peer < fabric.world(); ++peer) {
        static_cast<void>(send(fabric, peer, number % 3, std::as_bytes(std::span(&number, 1)),
                               fabric.now() + microseconds(50)));
        uint64_t in = 0;
        static_cast<void>(receive(fabric, peer, number % 3,
                                  std::as_writable_bytes(std::span(&in, 1)),
                                  fabric.now() + microseconds(20)));
      }
      ++number;
    }
  });
  return sim.trace_hash();
}

TEST(Sim, TheSameSeedGivesTheSameRun) {
  std::set<uint64_t> traces;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const uint64_t trace = trace_of_a_wild_run(seed);
    EXPECT_EQ(trace, trace_of_a_wild_run(seed)) << "seed " << seed;
    traces.insert(trace);
  }
  EXPECT_EQ(traces.size(), 5u) << "seeds make no difference";
}

TEST(Sim, MachinesRunByTheThousand) {
  for_each_seed(2000, [](uint64_t seed) {
    SimWorld sim({.world = 3, .seed = seed});
    std::vector<RingMachine> machines;
    for (int rank = 0; rank < 3; ++rank) machines.emplace_back(sim.fabric(rank), 5);
    const auto outcome =
        sim.run([&](int rank) { return machines[static_cast<size_t>(rank)].advance(); });
    EXPECT_EQ(outcome.end, End::kAllDone);
    EXPECT_EQ(machines[0].value(), 15u);
  });
}

TEST(Sim, ADeathAtEveryOperationIsSeenByAll) {
  constexpr int kWorld = 3;
  uint64_t deaths = 0;
  for (int victim = 0; victim < kWorld; ++victim) {
    for (uint64_t operation = 1;; ++operation) {
      SimWorld sim({.world = kWorld,
                    .seed = operation,
                    .faults = {{.rank = victim, .operation = operation}}});
      std::vector<RingMachine> machines;
      for (int rank = 0; rank < kWorld; ++rank) machines.emplace_back(sim.fabric(rank), 4);
      const auto outcome =
          sim.run([&](int rank) { return machines[static_cast<size_t>(rank)].advance(); });
      EXPECT_EQ(outcome.end, End::kAllDone) << "rank " << victim << " operation " << operation;
      if (!outcome.dead[static_cast<size_t>(victim)]) break;  // it came to its end before
      ++deaths;
    }
  }
  EXPECT_EQ(deaths, 8u + 8u + 8u);
}

TEST(Sim, ADeadRankLosesOnlyTheEndOfWhatItSent) {
  uint64_t heard_least = 100, heard_most = 0;
  for_each_seed(200, [&](uint64_t seed) {
    SimWorld sim({.world = 2, .seed = seed, .faults = {{.rank = 0, .operation = 21}}});
    sim.run_blocking([&](int rank, Fabric& fabric) {
      if (rank == 0) {
        for (uint64_t i = 0;; ++i) {
          const auto deadline = fabric.now() + seconds(1);
          static_cast<void>(send(fabric, 1, 0, std::as_bytes(std::span(&i, 1)), deadline));
        }
      }
      uint64_t heard = 0, in = 0;
      while (receive(fabric, 0, 0, std::as_writable_bytes(std::span(&in, 1)), Instant::max())) {
        EXPECT_EQ(in, heard++);
      }
      EXPECT_TRUE(fabric.gone(0));
      heard_least = std::min(heard_least, heard);
      heard_most = std::max(heard_most, heard);
    });
  });
  EXPECT_EQ(heard_most, 20u);
  EXPECT_LT(heard_least, 20u);
}

TEST(Sim, AFrozenRankIsLateButNotGone) {
  SimWorld sim(
      {.world = 2,
       .faults = {
           {.rank = 1, .at = at(microseconds(1)), .freeze = true, .lasts = milliseconds(500)}}});
  const auto outcome = sim.run_blocking([](int rank, Fabric& fabric) {
    std::byte byte{5};
    if (rank == 1) {
      EXPECT_FALSE(fabric.progress(fabric.now() + microseconds(5)));
      EXPECT_GE(fabric.now(), at(milliseconds(500)));
      EXPECT_TRUE(send(fabric, 0, 1, std::span(&byte, 1), soon(fabric)).ok());
      return;
    }
    const Status early = receive(fabric, 1, 1, std::span(&byte, 1), at(milliseconds(100)));
    EXPECT_EQ(early.failure().kind, FailureKind::kDeadline);
    EXPECT_EQ(fabric.now(), at(milliseconds(100)));
    EXPECT_FALSE(fabric.gone(1));
    EXPECT_TRUE(receive(fabric, 1, 1, std::span(&byte, 1), soon(fabric)).ok());
  });
  EXPECT_TRUE(outcome.all_done());
}

// When a byte that rank 0 sends at 1 ms reaches rank 1, or nothing when it does not.
std::optional<Instant> arrival(SimOptions options) {
  SimWorld sim(std::move(options));
  std::optional<Instant> arrived;
  sim.run_blocking([&](int rank, Fabric& fabric) {
    std::byte byte{};
    if (rank == 0) {
      fabric.progress(at(milliseconds(1)));
      EXPECT_TRUE(send(fabric, 1, 1, std::span(&byte, 1), soon(fabric)).ok());
      fabric.progress(at(seconds(2)));
    } else if (rank == 1) {
      if (receive(fabric, 0, 1, std::span(&byte, 1), at(seconds(1)))) arrived = fabric.now();
    }
  });
  return arrived;
}

TEST(Sim, PartitionsHoldOrLoseMessages) {
  SimPartition partition{
      .from = at(microseconds(500)), .until = at(milliseconds(7)), .group = 0b01};
  EXPECT_LT(arrival({.world = 3}).value(), at(milliseconds(2)));
  EXPECT_GT(arrival({.world = 3, .partitions = {partition}}).value(), at(milliseconds(7)));
  partition.lose = true;
  EXPECT_EQ(arrival({.world = 3, .partitions = {partition}}), std::nullopt);
  partition.group = 0b11;  // both on one side
  EXPECT_LT(arrival({.world = 3, .partitions = {partition}}).value(), at(milliseconds(2)));
}

TEST(Sim, LinksAreAsTheyAreSaidToBe) {
  EXPECT_EQ(arrival({.link = {.drop = 1}}), std::nullopt);
  const microseconds slow(333);
  EXPECT_EQ(arrival({.link = {.delay_least = slow, .delay_most = slow}}),
            at(milliseconds(1) + slow));
  const auto between = [](int from, int) {
    return SimLink{.delay_least = microseconds(from == 0 ? 70 : 7),
                   .delay_most = microseconds(from == 0 ? 70 : 7)};
  };
  EXPECT_EQ(arrival({.link_between = between}), at(milliseconds(1) + microseconds(70)));
}

// The numbers that arrive of 0 … 99 sent in order.
std::vector<uint64_t> heard_of_hundred(const SimLink& link) {
  SimWorld sim({.seed = 3, .link = link});
  std::vector<uint64_t> heard;
  sim.run_blocking([&](int rank, Fabric& fabric) {
    if (rank == 0) {
      for (uint64_t i = 0; i < 100; ++i) {
        EXPECT_TRUE(send(fabric, 1, 1, std::as_bytes(std::span(&i, 1)), soon(fabric)).ok());
      }
      return;
    }
    uint64_t in = 0;
    while (receive(fabric, 0, 1, std::as_writable_bytes(std::span(&in, 1)), at(seconds(1)))) {
      heard.push_back(in);
    }
  });
  return heard;
}

TEST(Sim, DropsDuplicatesAndReordersWhenAsked) {
  const auto plain = heard_of_hundred({});
  EXPECT_EQ(plain.size(), 100u);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
  EXPECT_LT(heard_of_hundred({.drop = 0.3}).size(), 90u);
  EXPECT_GT(heard_of_hundred({.duplicate = 0.3}).size(), 110u);
  const auto mixed = heard_of_hundred({.reorder = true});
  EXPECT_EQ(mixed.size(), 100u);
  EXPECT_FALSE(std::is_sorted(mixed.begin(), mixed.end()));
}

TEST(Sim, FindsMemoryThatChangesBeforeItsSendIsDone) {
  for (const size_t length : {size_t{8}, size_t{1} << 20}) {
    SimWorld sim({});
    const auto run = [&] {
      sim.run_blocking([&](int rank, Fabric& fabric) {
        std::vector<std::byte> bytes(length);
        if (rank == 0) {
          const Ticket ticket = fabric.start_send(1, 1, bytes);
          bytes[length / 2] = std::byte{1};
          static_cast<void>(wait(fabric, ticket, soon(fabric)));
        } else {
          static_cast<void>(receive(fabric, 0, 1, bytes, soon(fabric)));
        }
      });
    };
    EXPECT_THROW(run(), std::logic_error) << length;
  }
}

TEST(Sim, FindsProgramsThatRelyOnBuffers) {
  SimWorld sim({});
  const auto outcome = sim.run_blocking([](int rank, Fabric& fabric) {
    std::vector<std::byte> bytes(1 << 20);
    const Status sent = send(fabric, 1 - rank, 1, bytes, at(seconds(1)));
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.failure().kind, FailureKind::kDeadline);
  });
  EXPECT_TRUE(outcome.all_done());
}

TEST(Sim, SaysWhenNothingCanHappenAnyMore) {
  SimWorld stuck({});
  const auto stalled = stuck.run([&](int rank) {
    stuck.fabric(rank).progress(Instant::max());
    return rank == 0;
  });
  EXPECT_EQ(stalled.end, End::kStalled);
  EXPECT_TRUE(stalled.done[0]);
  EXPECT_FALSE(stalled.done[1]);

  SimWorld endless({.end = at(seconds(1))});
  const auto late = endless.run([&](int rank) {
    endless.fabric(rank).progress(endless.now() + milliseconds(1));
    return false;
  });
  EXPECT_EQ(late.end, End::kOutOfTime);
  EXPECT_LE(endless.now(), at(seconds(1)));
}

TEST(Sim, WhatARankThrowsComesOutOfTheRun) {
  SimWorld sim({.world = 3});
  const auto run = [&] {
    sim.run_blocking([](int rank, Fabric& fabric) {
      if (rank == 1) throw std::runtime_error("out of rank 1");
      EXPECT_EQ(receive(fabric, 1, 1, {}, soon(fabric)).failure().kind, FailureKind::kPeerGone);
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
}

}  // namespace
}  // namespace starling
