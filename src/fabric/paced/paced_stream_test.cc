// Paced streams over queues in memory, by a clock that the test moves; and over sockets, where only
// the least time is certain.
#include "fabric/paced/paced_stream.h"

#include <gtest/gtest.h>

#include <deque>

#include "fabric/fabric_testing.h"

namespace starling {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// One end of two queues.
class QueueStream final : public ByteStream {
 public:
  struct Queue {
    std::deque<std::byte> bytes;
    size_t capacity = 64 << 20;
    bool closed = false;
  };

  QueueStream(Queue& out, Queue& in) : out_(out), in_(in) {}

  ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    if (in_.closed) return kLost;
    size_t done = 0;
    for (const std::span<const std::byte> part : {head, body}) {
      for (const std::byte byte : part) {
        if (out_.bytes.size() == out_.capacity) return static_cast<ptrdiff_t>(done);
        out_.bytes.push_back(byte);
        ++done;
      }
    }
    return static_cast<ptrdiff_t>(done);
  }
  ptrdiff_t read(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), in_.bytes.size());
    if (count == 0 && in_.closed) return kLost;
    std::copy_n(in_.bytes.begin(), count, into.begin());
    in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<ptrdiff_t>(count));
    return static_cast<ptrdiff_t>(count);
  }
  bool ended() const override { return in_.closed; }
  bool ended_in_order() const override { return in_.closed; }
  void hang_up() override { out_.closed = true; }
  std::string why_lost() const override { return "closed the queue"; }

 private:
  Queue& out_;
  Queue& in_;
};

// Senders, each with a link of its own, and one receiver.
class PacedStreams : public testing::Test {
 protected:
  // A byte of the wire is a microsecond.
  static constexpr LinkOptions kSlow{.bits_per_second = 8'000'000, .delay = milliseconds(5)};

  struct Sender {
    QueueStream::Queue out, back;
    std::shared_ptr<LinkPacer> pacer;
    std::unique_ptr<PacedStream> stream, received;  // its end, the receiver's
    std::vector<std::byte> to_send;
    size_t sent = 0;
    std::vector<std::byte> got;
    Instant done{};  // when all had come
  };

  LinkPacer::Clock clock() {
    return [this] { return now_; };
  }

  void make(size_t senders, size_t bytes, const LinkOptions& link = kSlow) {
    receiver_ = std::make_shared<LinkPacer>(link, clock());
    for (size_t i = 0; i < senders; ++i) {
      Sender& sender = senders_.emplace_back();
      sender.pacer = std::make_shared<LinkPacer>(link, clock());
      sender.stream = std::make_unique<PacedStream>(
          sender.pacer, std::make_unique<QueueStream>(sender.out, sender.back));
      sender.received = std::make_unique<PacedStream>(
          receiver_, std::make_unique<QueueStream>(sender.back, sender.out));
      sender.to_send = pattern(bytes, i);
    }
  }

  // Everybody does what it can; false when nothing moved.
  bool round() {
    bool moved = false;
    receiver_->advance();
    for (Sender& sender : senders_) {
      sender.pacer->advance();
      const std::span<const std::byte> rest = std::span(sender.to_send).subspan(sender.sent);
      if (!rest.empty()) {
        // As the fabric does: a head, then the rest.
        const size_t head = std::min<size_t>(rest.size(), 32);
        const ptrdiff_t wrote = sender.stream->write(rest.first(head), rest.subspan(head));
        sender.sent += static_cast<size_t>(std::max<ptrdiff_t>(wrote, 0));
        moved |= wrote > 0;
      }
      std::array<std::byte, 5000> some;
      const ptrdiff_t read = reads_ ? sender.received->read(some) : 0;
      if (read <= 0) continue;
      moved = true;
      sender.got.insert(sender.got.end(), some.begin(), some.begin() + read);
      if (sender.got.size() == sender.to_send.size()) sender.done = now_;
    }
    return moved;
  }

  // Goes on until nothing is to be waited for, sleeping as long as the pacers say.
  void run() {
    while (true) {
      while (round()) {
      }
      Instant next = receiver_->next_look();
      for (Sender& sender : senders_) next = std::min(next, sender.pacer->next_look());
      if (next == Instant::max()) return;
      ASSERT_GT(next, now_) << "it would not sleep";
      now_ = next;
    }
  }

  const Instant begin_ = Instant(std::chrono::seconds(1000));
  Instant now_ = begin_;
  bool reads_ = true;  // the receiver
  std::shared_ptr<LinkPacer> receiver_;
  std::deque<Sender> senders_;
};

TEST_F(PacedStreams, TakeTheTimeOfTheWireAndTheDelay) {
  make(1, 200'000);
  run();
  EXPECT_TRUE(senders_[0].got == senders_[0].to_send);
  const nanoseconds took = senders_[0].done - begin_;
  EXPECT_EQ(took, microseconds(wire_bytes(200'000)) + milliseconds(5));
}

TEST_F(PacedStreams, ASmallMessageTakesASegmentAndTheDelay) {
  make(1, 100);
  run();
  EXPECT_EQ(senders_[0].done - begin_, microseconds(166) + milliseconds(5));
}

TEST_F(PacedStreams, SendersToOneReceiverShareItsWire) {
  make(4, 50'000);
  run();
  Instant last{};
  for (Sender& sender : senders_) {
    EXPECT_TRUE(sender.got == sender.to_send);
    last = std::max(last, sender.done);
  }
  // The first parcel comes in while it is sent; all others wait for each other.
  const nanoseconds took = last - begin_;
  EXPECT_EQ(took, microseconds(4 * wire_bytes(50'000)) + milliseconds(5));
  for (Sender& sender : senders_)
    EXPECT_GT(sender.done - begin_, took * 3 / 4) << "one got ahead of the others";
}

TEST_F(PacedStreams, StreamsOfOneSenderShareItsWireFairly) {
  make(3, 90'000);
  // All by the first one's interface, to receivers that take what comes.
  for (Sender& sender : senders_) {
    sender.pacer = senders_[0].pacer;
    sender.stream = std::make_unique<PacedStream>(
        sender.pacer, std::make_unique<QueueStream>(sender.out, sender.back));
  }
  run();
  const nanoseconds all = microseconds(3 * wire_bytes(90'000)) + milliseconds(5);
  for (Sender& sender : senders_) {
    EXPECT_TRUE(sender.got == sender.to_send);
    EXPECT_LE(sender.done - begin_, all);
    EXPECT_GT(sender.done - begin_, all * 3 / 4) << "one got ahead of the others";
  }
}

TEST_F(PacedStreams, TheLinkWorksOnWhileNobodyLooks) {
  make(1, 9'000);
  while (round()) {
  }
  now_ = begin_ + milliseconds(200);  // the receiver computed meanwhile
  run();
  EXPECT_EQ(senders_[0].done, now_) << "it had come long ago";
}

TEST_F(PacedStreams, ASocketThatIsFullHoldsASenderUpAndLosesNothing) {
  make(1, 60'000);
  senders_[0].out.capacity = 7;
  for (int i = 0; i < 200'000 && senders_[0].done == Instant{}; ++i) {
    if (!round()) now_ += microseconds(100);
  }
  EXPECT_TRUE(senders_[0].got == senders_[0].to_send);
}

TEST_F(PacedStreams, HoldNoMoreThanTheirLimit) {
  make(1, 1'500'000);
  ASSERT_EQ(receiver_->held_bytes_most(), size_t{1} << 20);
  reads_ = false;
  run();
  EXPECT_GT(senders_[0].out.bytes.size(), 400'000u) << "the rest is the socket's";
  reads_ = true;
  run();
  EXPECT_TRUE(senders_[0].got == senders_[0].to_send);
}

TEST_F(PacedStreams, TheEndIsSeenAfterTheLastBytes) {
  make(1, 20'000);
  while (round()) {
  }
  run();
  senders_[0].to_send.resize(20'100);
  ASSERT_TRUE(round());
  senders_[0].stream->hang_up();
  std::array<std::byte, 200> some;
  receiver_->advance();
  EXPECT_EQ(senders_[0].received->read(some), 0) << "the bytes before it are on their way";
  now_ += milliseconds(6);
  receiver_->advance();
  EXPECT_EQ(senders_[0].received->read(some), 100);
  EXPECT_EQ(senders_[0].received->read(some), ByteStream::kLost);
  EXPECT_TRUE(senders_[0].received->ended_in_order());
}

TEST_F(PacedStreams, AWriterThatFindsTheEndStillReadsWhatCameBefore) {
  make(1, 500);
  ASSERT_TRUE(round());
  senders_[0].stream->hang_up();
  const std::array<std::byte, 10> answer{};
  EXPECT_EQ(senders_[0].received->write(answer, {}), 0);
  now_ += milliseconds(20);
  receiver_->advance();
  std::array<std::byte, 1000> some;
  EXPECT_EQ(senders_[0].received->read(some), 500);
  EXPECT_EQ(senders_[0].received->read(some), ByteStream::kLost);
}

TEST_F(PacedStreams, NonsenseIsALoss) {
  for (const bool far : {false, true}) {
    senders_.clear();
    make(1, 0);
    std::array<std::byte, PacedStream::kParcelHeadBytes + 10> bytes{};
    bytes[0] = std::byte{10};
    if (far) bytes[10] = std::byte{0x7F};  // a time that no clock will see
    if (!far) bytes[3] = std::byte{1};     // 16 MiB
    senders_[0].out.bytes.assign(bytes.begin(), bytes.end());
    receiver_->advance();
    std::array<std::byte, 100> some;
    EXPECT_EQ(senders_[0].received->read(some), ByteStream::kLost);
    EXPECT_EQ(senders_[0].received->why_lost(), "sent what is not a parcel of a paced stream");
    EXPECT_FALSE(senders_[0].received->ended_in_order());
  }
}

// Two ranks over sockets with such a link.
void run_paced(const LinkOptions& link, const std::function<void(Fabric&)>& body) {
  std::vector<TcpListener> listeners(2);
  std::vector<TcpAddress> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  run_threads(2, [&](int rank) {
    TcpFabric fabric(std::move(listeners[static_cast<size_t>(rank)]),
                     {.rank = rank, .addresses = addresses, .token = test_token(), .link = link});
    body(fabric);
  });
}

TEST(PacedTcp, ATransferTakesAtLeastTheTimeOfTheLink) {
  constexpr size_t kBytes = 100'000;
  run_paced({.bits_per_second = 8'000'000, .delay = milliseconds(20)}, [&](Fabric& fabric) {
    const int peer = 1 - fabric.rank();
    const std::vector<std::byte> out = pattern(kBytes, static_cast<uint64_t>(fabric.rank()));
    std::vector<std::byte> in(kBytes);
    std::array<std::byte, 4> word{};
    // Rank 1 begins when it is told to, so that all of its time is seen by rank 0.
    const Instant begin = fabric.now();
    if (fabric.rank() == 0) {
      ASSERT_TRUE(send(fabric, peer, 2, word, soon(fabric)).ok());
    } else {
      ASSERT_TRUE(receive(fabric, peer, 2, word, soon(fabric)).ok());
    }
    const Ticket sending = fabric.start_send(peer, 1, out);
    ASSERT_TRUE(receive(fabric, peer, 1, in, soon(fabric)).ok());
    EXPECT_GE(fabric.now() - begin, milliseconds(fabric.rank() == 0 ? 104 + 2 * 20 : 0));
    EXPECT_TRUE(in == pattern(kBytes, static_cast<uint64_t>(peer)));
    EXPECT_TRUE(wait(fabric, sending, soon(fabric)).ok());
  });
}

TEST(PacedTcp, AnAnswerTakesTwoDelays) {
  run_paced({.delay = milliseconds(30)}, [](Fabric& fabric) {
    const int peer = 1 - fabric.rank();
    std::array<std::byte, 4> word{};
    if (fabric.rank() == 1) {
      ASSERT_TRUE(receive(fabric, peer, 1, word, soon(fabric)).ok());
      ASSERT_TRUE(send(fabric, peer, 2, word, soon(fabric)).ok());
      // The answer is on its way, and comes though this side is closed meanwhile.
      return;
    }
    const Instant begin = fabric.now();
    ASSERT_TRUE(send(fabric, peer, 1, word, soon(fabric)).ok());
    ASSERT_TRUE(receive(fabric, peer, 2, word, soon(fabric)).ok());
    EXPECT_GE(fabric.now() - begin, milliseconds(60));
  });
}

TEST(PacedTcp, CancelledSendsLeaveTheStreamWhole) {
  run_paced({.bits_per_second = 80'000'000, .delay = milliseconds(1)}, [](Fabric& fabric) {
    const int peer = 1 - fabric.rank();
    std::vector<std::byte> small(1000);
    if (fabric.rank() == 0) {
      std::vector<std::byte> big = pattern(300'000, 1);
      const Ticket ticket = fabric.start_send(peer, 1, big);
      fabric.progress(fabric.now() + milliseconds(5));
      fabric.cancel(ticket);  // partly sent: it still arrives whole
      big.assign(big.size(), std::byte{0});
      small = pattern(1000, 2);
      ASSERT_TRUE(send(fabric, peer, 1, small, soon(fabric)).ok());
      ASSERT_TRUE(receive(fabric, peer, 3, small, soon(fabric)).ok());
    } else {
      std::vector<std::byte> big(300'000);
      ASSERT_TRUE(receive(fabric, peer, 1, big, soon(fabric)).ok());
      EXPECT_TRUE(big == pattern(300'000, 1));
      ASSERT_TRUE(receive(fabric, peer, 1, small, soon(fabric)).ok());
      EXPECT_TRUE(small == pattern(1000, 2));
      ASSERT_TRUE(send(fabric, peer, 3, small, soon(fabric)).ok());
    }
  });
}

TEST(PacedTcp, ClosingWhileMuchIsToBeSentFailsTheOthersReceive) {
  run_paced({.bits_per_second = 1'000'000}, [](Fabric& fabric) {
    const int peer = 1 - fabric.rank();
    std::vector<std::byte> big(10 << 20);
    if (fabric.rank() == 0) {
      const Ticket ticket = fabric.start_send(peer, 1, big);
      fabric.progress(fabric.now() + milliseconds(20));
      fabric.close();
      EXPECT_EQ(fabric.poll(ticket).failure, FailureKind::kClosed);
    } else {
      const Status status = receive(fabric, peer, 1, big, soon(fabric));
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.failure().kind, FailureKind::kPeerGone);
    }
  });
}

}  // namespace
}  // namespace starling
