// What every fabric promises, over sim, shm and tcp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <tuple>

#include "fabric/fabric_testing.h"

namespace starling {
namespace {

using std::chrono::milliseconds;
using testing::Combine;
using testing::HasSubstr;
using testing::Values;

const auto kKinds =
    Values(TestedFabric::kSim, TestedFabric::kShm, TestedFabric::kTcp, TestedFabric::kPacedTcp);
const auto kWorlds = Values(1, 2, 3, 4, 7, 8);

uint64_t key_of(int from, int to, uint64_t number = 0) {
  return static_cast<uint64_t>(from) << 40 | static_cast<uint64_t>(to) << 20 | number;
}

// Every transfer is done; the first failure is told.
Status wait_all(Fabric& fabric, std::vector<Ticket>& tickets) {
  Status first;
  for (Ticket& ticket : tickets) {
    const Result<size_t> one = wait(fabric, ticket, soon(fabric));
    if (!one.ok() && first.ok()) first = one.failure();
  }
  tickets.clear();
  return first;
}

// A message to everyone else, and one from each: nobody leaves before all are here.
void meet(Fabric& fabric, Tag tag) {
  std::vector<Ticket> tickets;
  for (int peer = 0; peer < fabric.world(); ++peer) {
    if (peer == fabric.rank()) continue;
    tickets.push_back(fabric.start_receive(peer, tag, {}));
    tickets.push_back(fabric.start_send(peer, tag, {}));
  }
  const Status status = wait_all(fabric, tickets);
  EXPECT_TRUE(status.ok()) << status.failure().message;
}

class EveryLength : public testing::TestWithParam<std::tuple<TestedFabric, int, size_t>> {};

TEST_P(EveryLength, GoesFromEveryRankToEveryRank) {
  const auto [kind, size, length] = GetParam();
  run_ranks(kind, size, [length = length](Fabric& fabric) {
    const int world = fabric.world(), rank = fabric.rank();
    std::vector<std::vector<std::byte>> out, in;
    std::vector<Ticket> tickets;
    for (int peer = 0; peer < world; ++peer) {
      in.emplace_back(length);
      tickets.push_back(fabric.start_receive(peer, 5, in.back()));
    }
    for (int peer = 0; peer < world; ++peer) {
      out.push_back(pattern(length, key_of(rank, peer)));
      tickets.push_back(fabric.start_send(peer, 5, out.back()));
    }
    const Status status = wait_all(fabric, tickets);
    ASSERT_TRUE(status.ok()) << status.failure().message;
    for (int peer = 0; peer < world; ++peer) {
      EXPECT_TRUE(in[static_cast<size_t>(peer)] == pattern(length, key_of(peer, rank)))
          << "rank " << rank << " from " << peer;
      EXPECT_EQ(fabric.counters(peer).bytes_sent, length);
      EXPECT_EQ(fabric.counters(peer).bytes_received, length);
      EXPECT_EQ(fabric.counters(peer).messages_sent, 1u);
      EXPECT_EQ(fabric.counters(peer).messages_received, 1u);
    }
    EXPECT_EQ(fabric.counters().bytes_sent, length * static_cast<size_t>(world));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Fabrics, EveryLength,
    Combine(kKinds, kWorlds, Values(size_t{0}, size_t{1}, size_t{10007}, (size_t{1} << 20) + 3)),
    [](const auto& test) {
      return name_of(std::get<0>(test.param)) + "_World" + std::to_string(std::get<1>(test.param)) +
             "_Length" + std::to_string(std::get<2>(test.param));
    });

class EveryFabric : public testing::TestWithParam<std::tuple<TestedFabric, int>> {
 protected:
  void run(const std::function<void(Fabric&)>& body) {
    run_ranks(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
  TestedFabric kind() const { return std::get<0>(GetParam()); }
};

TEST_P(EveryFabric, KeepsTheOrderOfATag) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    std::vector<uint64_t> numbers(100);
    std::vector<Ticket> tickets;
    for (uint64_t& number : numbers) {
      number = static_cast<uint64_t>(&number - numbers.data());
      tickets.push_back(fabric.start_send(next, 1, std::as_bytes(std::span(&number, 1))));
    }
    for (uint64_t expected = 0; expected < numbers.size(); ++expected) {
      uint64_t got = ~uint64_t{0};
      const Status status =
          receive(fabric, before, 1, std::as_writable_bytes(std::span(&got, 1)), soon(fabric));
      ASSERT_TRUE(status.ok()) << status.failure().message;
      ASSERT_EQ(got, expected);
    }
    EXPECT_TRUE(wait_all(fabric, tickets).ok());
  });
}

TEST_P(EveryFabric, ReceivesTagsInAnyOrder) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    std::vector<std::vector<std::byte>> out;
    std::vector<Ticket> tickets;
    for (Tag tag = 0; tag < 12; ++tag) {
      out.push_back(pattern(1000 * tag, key_of(fabric.rank(), next, tag)));
      tickets.push_back(fabric.start_send(next, tag, out.back()));
    }
    for (Tag tag = 12; tag-- > 0;) {
      std::vector<std::byte> in(1000 * tag);
      const Status status = receive(fabric, before, tag, in, soon(fabric));
      ASSERT_TRUE(status.ok()) << status.failure().message;
      EXPECT_TRUE(in == pattern(in.size(), key_of(before, fabric.rank(), tag))) << tag;
    }
    EXPECT_TRUE(wait_all(fabric, tickets).ok());
  });
}

TEST_P(EveryFabric, CarriesManyAtOnce) {
  constexpr uint64_t kCount = 40;
  run([](Fabric& fabric) {
    const int world = fabric.world(), rank = fabric.rank();
    const auto length = [](uint64_t number) { return number % 5 == 4 ? 150'001u : 7 * number; };
    std::vector<std::vector<std::byte>> out, in;
    std::vector<Ticket> tickets;
    out.reserve(kCount * static_cast<size_t>(world));
    in.reserve(out.capacity());
    for (int peer = 0; peer < world; ++peer) {
      for (uint64_t number = 0; number < kCount; ++number) {
        out.push_back(pattern(length(number), key_of(rank, peer, number)));
        tickets.push_back(fabric.start_send(peer, number % 3, out.back()));
        in.emplace_back(length(number));
        tickets.push_back(fabric.start_receive(peer, number % 3, in.back()));
      }
    }
    const Status status = wait_all(fabric, tickets);
    ASSERT_TRUE(status.ok()) << status.failure().message;
    for (int peer = 0; peer < world; ++peer) {
      for (uint64_t number = 0; number < kCount; ++number) {
        ASSERT_TRUE(in[static_cast<size_t>(peer) * kCount + number] ==
                    pattern(length(number), key_of(peer, rank, number)));
      }
    }
  });
}

TEST_P(EveryFabric, SaysWhatWasNotDoneInTime) {
  run([](Fabric& fabric) {
    const int peer = (fabric.rank() + 1) % fabric.world();
    std::vector<std::byte> in(100);
    const Instant began = fabric.now();
    const Status status = receive(fabric, peer, 77, in, began + milliseconds(5));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.failure().kind, FailureKind::kDeadline);
    EXPECT_EQ(status.failure().peer, peer);
    EXPECT_THAT(status.failure().message,
                HasSubstr("receive rank=" + std::to_string(fabric.rank()) + " tag=77: peer " +
                          std::to_string(peer)));
    EXPECT_THAT(status.failure().message, HasSubstr("0 of 100 bytes"));
    EXPECT_GE(fabric.now() - began, milliseconds(5));
    meet(fabric, 1);
  });
}

TEST_P(EveryFabric, TakesMessagesOfUnknownLength) {
  run([](Fabric& fabric) {
    const int world = fabric.world(), rank = fabric.rank();
    // Everyone sends rank + 1 bytes to rank 0, which does not know who comes first.
    const std::vector<std::byte> out = pattern(static_cast<size_t>(rank) + 1, key_of(rank, 0));
    const Ticket sent = fabric.start_send(0, 9, out);
    if (rank == 0) {
      std::vector<bool> heard(static_cast<size_t>(world));
      for (int i = 0; i < world; ++i) {
        std::vector<std::byte> in(100);
        const Ticket ticket = fabric.start_receive_up_to(kAnyPeer, 9, in);
        Transfer transfer = fabric.poll(ticket);
        while (transfer.pending() && fabric.progress(soon(fabric))) transfer = fabric.poll(ticket);
        ASSERT_TRUE(transfer.done());
        EXPECT_EQ(transfer.bytes, static_cast<size_t>(transfer.peer) + 1);
        in.resize(transfer.bytes);
        EXPECT_TRUE(in == pattern(in.size(), key_of(transfer.peer, 0)));
        heard[static_cast<size_t>(transfer.peer)] = true;
      }
      EXPECT_THAT(heard, testing::Each(true));
    }
    EXPECT_TRUE(wait(fabric, sent, soon(fabric)).ok());
  });
}

TEST_P(EveryFabric, RefusesAMessageOfAnotherLengthAndGoesOn) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    for (const size_t length : {size_t{12}, size_t{200'000}}) {
      const std::vector<std::byte> out = pattern(length, 1);
      std::vector<Ticket> tickets;
      for (int i = 0; i < 3; ++i) tickets.push_back(fabric.start_send(next, 3, out));
      std::vector<std::byte> in(length);
      const Status shorter =
          receive(fabric, before, 3, std::span(in).first(length - 1), soon(fabric));
      ASSERT_FALSE(shorter.ok());
      EXPECT_EQ(shorter.failure().kind, FailureKind::kLength);
      const Result<size_t> small =
          receive_up_to(fabric, before, 3, std::span(in).first(length - 1), soon(fabric));
      ASSERT_FALSE(small.ok());
      EXPECT_EQ(small.failure().kind, FailureKind::kLength);
      const Status right = receive(fabric, before, 3, in, soon(fabric));
      ASSERT_TRUE(right.ok()) << right.failure().message;
      EXPECT_TRUE(in == out);
      EXPECT_TRUE(wait_all(fabric, tickets).ok());
    }
  });
}

TEST_P(EveryFabric, CancelledTransfersDisturbNoOthers) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    {
      std::vector<std::byte> unused(1 << 20, std::byte{1});
      fabric.cancel(fabric.start_receive(before, 4, unused));
      const Ticket half = fabric.start_send(next, 4, unused);  // may be on its way, or not
      fabric.progress(fabric.now());
      if (fabric.poll(half).pending()) fabric.cancel(half);
    }
    const std::vector<std::byte> out = pattern(300'000, key_of(fabric.rank(), next));
    std::vector<std::byte> in(out.size());
    std::vector<Ticket> tickets = {fabric.start_receive(before, 5, in),
                                   fabric.start_send(next, 5, out)};
    const Status status = wait_all(fabric, tickets);
    ASSERT_TRUE(status.ok()) << status.failure().message;
    EXPECT_TRUE(in == pattern(in.size(), key_of(before, fabric.rank())));
    meet(fabric, 6);
  });
}

TEST_P(EveryFabric, RetiredTicketsAreRefused) {
  run([](Fabric& fabric) {
    EXPECT_TRUE(fabric.poll(Ticket()).done());
    fabric.cancel(Ticket());
    const Ticket ticket = fabric.start_receive(fabric.rank(), 1, {});
    fabric.cancel(ticket);
    EXPECT_THROW(fabric.poll(ticket), std::logic_error);
    EXPECT_THROW(fabric.start_send(fabric.world(), 1, {}), std::logic_error);
    EXPECT_THROW(fabric.start_send(kAnyPeer, 1, {}), std::logic_error);
    meet(fabric, 1);
  });
}

// One may have left because of the other.
TEST_P(EveryFabric, AFailureNamesAllThatAreGone) {
  run([](Fabric& fabric) {
    meet(fabric, 1);
    const int last = fabric.world() - 1;
    if (fabric.rank() != 0 || last < 2) return;
    fabric.mark_gone(1);
    fabric.mark_gone(last);
    const Status received = receive(fabric, last, 2, {}, soon(fabric));
    ASSERT_FALSE(received.ok());
    // Some may have left already, which is what is told then.
    EXPECT_THAT(received.failure().message, testing::ContainsRegex(fmt::format(
                                                "peer {} [a-z ]+ \\(gone, too: peer 1[,)]", last)));
  });
}

// The last rank leaves: a result for all, at once, for what is pending and what comes later.
TEST_P(EveryFabric, ALostPeerIsAResult) {
  run([](Fabric& fabric) {
    const int last = fabric.world() - 1;
    meet(fabric, 1);
    if (last == 0) return;
    if (fabric.rank() == last) {
      std::byte byte{42};
      for (int peer = 0; peer < last; ++peer) {
        EXPECT_TRUE(send(fabric, peer, 2, std::span(&byte, 1), soon(fabric)).ok());
      }
      fabric.close();
      return;
    }
    // More than the buffers of the system take.
    static const std::vector<std::byte> out(size_t{64} << 20);
    std::vector<std::byte> in(1000);
    const Ticket receiving = fabric.start_receive(last, 3, in);
    const Ticket sending = fabric.start_send(last, 4, out);
    const Result<size_t> received = wait(fabric, receiving, soon(fabric));
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.failure().kind, FailureKind::kPeerGone);
    EXPECT_EQ(received.failure().peer, last);
    const Result<size_t> sent = wait(fabric, sending, soon(fabric));
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.failure().kind, FailureKind::kPeerGone);
    EXPECT_TRUE(fabric.gone(last));
    EXPECT_FALSE(fabric.why_gone(last).empty());
    EXPECT_TRUE(fabric.poll(fabric.start_receive(last, 3, in)).failed());
    EXPECT_TRUE(fabric.poll(fabric.start_send(last, 4, out)).failed());
    // What it had sent before is not lost.
    std::byte byte{};
    EXPECT_TRUE(receive(fabric, last, 2, std::span(&byte, 1), soon(fabric)).ok());
    EXPECT_EQ(byte, std::byte{42});
    // The others go on.
    for (int peer = 0; peer < last; ++peer) {
      if (peer == fabric.rank()) continue;
      EXPECT_FALSE(fabric.gone(peer));
      const Ticket there = fabric.start_send(peer, 8, {});
      EXPECT_TRUE(receive(fabric, peer, 8, {}, soon(fabric)).ok());
      EXPECT_TRUE(wait(fabric, there, soon(fabric)).ok());
    }
  });
}

TEST_P(EveryFabric, APeerThatIsReportedLostFailsAtOnce) {
  run([](Fabric& fabric) {
    meet(fabric, 1);
    if (fabric.rank() != 0 || fabric.world() == 1) return;
    std::vector<std::byte> in(10);
    const Ticket pending = fabric.start_receive(1, 3, in);
    if (!fabric.gone(1)) fabric.mark_gone(1);
    EXPECT_TRUE(fabric.progress(fabric.now()));
    EXPECT_EQ(fabric.poll(pending).failure, FailureKind::kPeerGone);
  });
}

TEST_P(EveryFabric, AnyoneMeansNobodyWhenAllAreGone) {
  run([](Fabric& fabric) {
    meet(fabric, 1);
    if (fabric.rank() != 0 || fabric.world() == 1) return;
    std::vector<std::byte> in(10);
    const Result<size_t> got = receive_up_to(fabric, kAnyPeer, 2, in, soon(fabric));
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.failure().kind, FailureKind::kPeerGone);
    EXPECT_THAT(got.failure().message, HasSubstr("all peers are gone"));
  });
}

TEST_P(EveryFabric, ClosingFailsWhatIsPendingAndLater) {
  run([](Fabric& fabric) {
    meet(fabric, 1);
    std::vector<std::byte> in(10);
    const Ticket pending = fabric.start_receive(fabric.rank(), 2, in);
    fabric.close();
    EXPECT_EQ(fabric.poll(pending).failure, FailureKind::kClosed);
    EXPECT_EQ(fabric.poll(fabric.start_send(0, 2, in)).failure, FailureKind::kClosed);
    EXPECT_EQ(fabric.poll(fabric.start_receive(0, 2, in)).failure, FailureKind::kClosed);
  });
}

TEST_P(EveryFabric, MessagesOfAnEarlierViewAreRefused) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    std::byte old{1}, fresh{2}, in{};
    EXPECT_TRUE(send(fabric, next, 5, std::span(&old, 1), soon(fabric)).ok());
    const Ticket pending = fabric.start_receive(before, 6, std::span(&in, 1));
    fabric.enter_view(3);
    EXPECT_EQ(fabric.view(), 3u);
    EXPECT_EQ(fabric.poll(pending).failure, FailureKind::kStaleView);
    EXPECT_THROW(fabric.enter_view(2), std::logic_error);
    // Some are in the new view before others: its messages wait for those.
    EXPECT_TRUE(send(fabric, next, 5, std::span(&fresh, 1), soon(fabric)).ok());
    const Status status = receive(fabric, before, 5, std::span(&in, 1), soon(fabric));
    ASSERT_TRUE(status.ok()) << status.failure().message;
    EXPECT_EQ(in, fresh);
    meet(fabric, 7);
  });
}

TEST_P(EveryFabric, AStaleReceiveUnderWayLeavesTheStreamWhole) {
  run([](Fabric& fabric) {
    const int next = (fabric.rank() + 1) % fabric.world();
    const int before = (fabric.rank() + fabric.world() - 1) % fabric.world();
    {
      std::vector<std::byte> out(2 << 20, std::byte{7}), in(2 << 20);
      const Ticket sending = fabric.start_send(next, 5, out);
      const Ticket receiving = fabric.start_receive(before, 5, in);
      for (int i = 0; i < 3; ++i) fabric.progress(fabric.now());
      fabric.enter_view(1);
      EXPECT_FALSE(fabric.poll(sending).pending());
      EXPECT_FALSE(fabric.poll(receiving).pending());
    }
    const std::vector<std::byte> out = pattern(100'000, key_of(fabric.rank(), next));
    std::vector<std::byte> in(out.size());
    std::vector<Ticket> tickets = {fabric.start_send(next, 5, out),
                                   fabric.start_receive(before, 5, in)};
    const Status status = wait_all(fabric, tickets);
    ASSERT_TRUE(status.ok()) << status.failure().message;
    EXPECT_TRUE(in == pattern(in.size(), key_of(before, fabric.rank())));
    meet(fabric, 7);
  });
}

TEST_P(EveryFabric, IsWokenFromAnotherThread) {
  if (kind() == TestedFabric::kSim) return;  // its ranks are alone in the world
  run([](Fabric& fabric) {
    std::atomic<bool> set = false;
    {
      std::jthread other([&] {
        set = true;
        fabric.wake();
      });
      while (!set) EXPECT_TRUE(fabric.progress(soon(fabric)));
    }
    meet(fabric, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, EveryFabric, Combine(kKinds, kWorlds), [](const auto& test) {
  return name_of(std::get<0>(test.param)) + "_World" + std::to_string(std::get<1>(test.param));
});

}  // namespace
}  // namespace starling
