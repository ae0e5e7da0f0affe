// What tcp has beyond the suite: strangers, liars, ports in use, several connections,
// back-pressure.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "error_of.h"
#include "fabric/fabric_testing.h"
#include "fabric/tcp/rendezvous.h"
#include "starling/error.h"

namespace starling {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A socket of the test's own, blocking, to say what it likes.
class Stranger {
 public:
  explicit Stranger(const TcpAddress& address) : socket_(begin_connect(address)) {
    pollfd polled{.fd = socket_.fd(), .events = POLLOUT, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 20'000), 1);
  }
  void say(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      pollfd polled{.fd = socket_.fd(), .events = POLLOUT, .revents = 0};
      ASSERT_EQ(poll(&polled, 1, 20'000), 1) << "it is not read";
      const ssize_t count = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(count, 0);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }
  // What is said to it, up to `bytes`; less when the connection is closed.
  std::vector<std::byte> hear(size_t bytes) {
    std::vector<std::byte> heard(bytes);
    size_t got = 0;
    while (got < bytes) {
      pollfd polled{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(poll(&polled, 1, 20'000), 1) << "nothing is heard";
      const ssize_t count = recv(socket_.fd(), &heard[got], bytes - got, MSG_DONTWAIT);
      if (count <= 0) break;
      got += static_cast<size_t>(count);
    }
    heard.resize(got);
    return heard;
  }
  void say_hello(const Hello& hello) {
    std::array<std::byte, kHelloBytes> bytes;
    write_hello(hello, bytes);
    say(bytes);
  }
  void hang_up() { socket_ = {}; }

 private:
  Socket socket_;
};

Hello good_hello() {
  return {.version = kProtocolVersion,
          .token = test_token(),
          .rank = 1,
          .world = 2,
          .connection = 0,
          .connections = 1};
}

// Rank 0 of a world of two, whose other rank the test plays.
class OneSide : public testing::Test {
 protected:
  TcpOptions options() const {
    return {.rank = 0,
            .addresses = {address_, {}},
            .token = test_token(),
            .connect_deadline = milliseconds(20'000),
            .buffer_bytes_per_peer = 1 << 20,
            .message_bytes_most = 1 << 30};
  }
  // The fabric, once the other side (run on a thread) has come in.
  void meet(const std::function<void(Fabric&)>& body, const std::function<void(Stranger&)>& other) {
    std::jthread thread([&] {
      Stranger stranger(address_);
      stranger.say_hello(good_hello());
      EXPECT_EQ(stranger.hear(kHelloBytes).size(), kHelloBytes);
      other(stranger);
    });
    TcpFabric fabric(std::move(listener_), options());
    body(fabric);
  }

  TcpListener listener_;
  const TcpAddress address_ = listener_.address();
};

std::vector<std::byte> frame(const FrameHeader& header, size_t bytes) {
  std::vector<std::byte> out(kFrameHeaderBytes + bytes);
  write_frame_header(header, std::span(out).first<kFrameHeaderBytes>());
  return out;
}

TEST_F(OneSide, StrangersAreClosedAndHoldNobodyUp) {
  std::jthread others([&] {
    Stranger silent(address_);
    Stranger noise(address_);
    noise.say(std::vector<std::byte>(kHelloBytes, std::byte{0x55}));
    EXPECT_TRUE(noise.hear(1).empty());
    Stranger other_job(address_);
    Hello hello = good_hello();
    hello.token[7] ^= std::byte{1};
    other_job.say_hello(hello);
    EXPECT_TRUE(other_job.hear(1).empty()) << "a wrong token gets no answer";
    Stranger half(address_);
    half.say(std::vector<std::byte>(10));
    half.hang_up();
    Stranger right(address_);
    right.say_hello(good_hello());
    EXPECT_EQ(right.hear(kHelloBytes).size(), kHelloBytes);
    EXPECT_TRUE(right.hear(1).empty());
  });
  const TcpFabric fabric(std::move(listener_), options());
}

// As when the first rank is the last to come: the others have connected and said hello already.
TEST_F(OneSide, HoweverManyHaveComeBeforeItLooksTheyAreWelcome) {
  constexpr uint32_t kOthers = 300;
  std::vector<Stranger> others;
  for (uint32_t rank = 1; rank <= kOthers; ++rank) {
    Hello hello = good_hello();
    hello.rank = rank;
    hello.world = kOthers + 1;
    others.emplace_back(address_).say_hello(hello);
  }
  RendezvousOptions meeting{.addresses = {address_}, .token = test_token()};
  meeting.addresses.resize(kOthers + 1);
  const auto found = rendezvous(listener_, meeting);
  for (uint32_t rank = 1; rank <= kOthers; ++rank) {
    EXPECT_EQ(found[rank].size(), 1u);
    std::vector<std::byte> answer = others[rank - 1].hear(kHelloBytes);
    ASSERT_EQ(answer.size(), kHelloBytes) << rank;
    EXPECT_EQ(parse_hello(std::span(answer).first<kHelloBytes>())->verdict, HelloVerdict::kWelcome);
  }
}

// More who say nothing than are let in at a time, and before who belongs here.
TEST_F(OneSide, HoweverManyStrangersAreSilentTheyHoldNobodyUpForLong) {
  std::vector<Stranger> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(address_);
  meet([](Fabric& fabric) { EXPECT_FALSE(fabric.gone(1)); }, [](Stranger&) {});
}

TEST_F(OneSide, TellsAWorkerOfTheJobWhyItIsRefused) {
  const std::vector<std::pair<HelloVerdict, std::function<void(Hello&)>>> cases = {
      {HelloVerdict::kVersion, [](Hello& hello) { hello.version = 99; }},
      {HelloVerdict::kWorld, [](Hello& hello) { hello.world = 3; }},
      {HelloVerdict::kWorld, [](Hello& hello) { hello.connections = 2; }},
      {HelloVerdict::kRank, [](Hello& hello) { hello.rank = 0; }},
      {HelloVerdict::kView, [](Hello& hello) { hello.view = 5; }},
  };
  std::jthread others([&] {
    for (const auto& [verdict, change] : cases) {
      Stranger stranger(address_);
      Hello hello = good_hello();
      change(hello);
      stranger.say_hello(hello);
      const std::vector<std::byte> heard = stranger.hear(kHelloBytes);
      ASSERT_EQ(heard.size(), kHelloBytes);
      const auto answer = parse_hello(std::span(heard).first<kHelloBytes>());
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->verdict, verdict);
    }
    Stranger right(address_);
    right.say_hello(good_hello());
    EXPECT_EQ(right.hear(kHelloBytes).size(), kHelloBytes);
  });
  const TcpFabric fabric(std::move(listener_), options());
}

TEST_F(OneSide, SaysWhoDidNotCome) {
  TcpOptions hurried = options();
  hurried.connect_deadline = milliseconds(20);
  const std::string why =
      error_of([&] { const TcpFabric fabric(std::move(listener_), hurried); }).what();
  int waited_ms = 0;
  ASSERT_EQ(sscanf(why.c_str(), "worker 0 waited %d ms", &waited_ms), 1) << why;
  EXPECT_GE(waited_ms, 20);
  EXPECT_LT(waited_ms, 20'000);
  EXPECT_THAT(why, HasSubstr("ms for the others; missing: 1"));
}

TEST_F(OneSide, GivesUpWhenItIsToldThatTheOtherHasEnded) {
  const RendezvousOptions other{
      .rank = 1, .addresses = {address_, {}}, .token = test_token(), .connections_per_peer = 1};
  RendezvousOptions of_a_stranger = other, of_another_view = other, of_itself = other;
  of_a_stranger.token[0] ^= std::byte{1};
  of_another_view.view = 7;
  of_itself.rank = 0;
  for (const RendezvousOptions& ended : {of_a_stranger, of_another_view, of_itself, other})
    tell_of_end(ended, address_);
  EXPECT_EQ(error_of([&] { const TcpFabric fabric(std::move(listener_), options()); }).what(),
            std::string("worker 1 has ended before it met worker 0"));
}

TEST_F(OneSide, WhomItHasMetMayEnd) {
  meet([](Fabric& fabric) { EXPECT_FALSE(fabric.gone(1)); },
       [&](Stranger&) {
         tell_of_end({.rank = 1, .addresses = {address_, {}}, .token = test_token()}, address_);
       });
}

TEST_F(OneSide, AMeetingThatIsInterruptedSaysSo) {
  const std::atomic<bool> interrupt = true;
  TcpOptions interrupted = options();
  interrupted.interrupt = &interrupt;
  const std::string why =
      error_of([&] { const TcpFabric fabric(std::move(listener_), interrupted); }).what();
  int waited_ms = 0;
  ASSERT_EQ(sscanf(why.c_str(), "worker 0 waited %d ms", &waited_ms), 1) << why;
  EXPECT_LT(waited_ms, 20'000) << "which is its deadline";
  EXPECT_THAT(why, HasSubstr("for the others, until a new view began; missing: 1"));
}

TEST(Tcp, SaysWhenAWorkerIsOfAnotherJobOrNotThere) {
  TcpListener first, second;
  const std::vector<TcpAddress> addresses = {first.address(), second.address()};
  JobToken other = test_token();
  other[0] ^= std::byte{1};
  std::jthread thread([&] {
    EXPECT_THROW(TcpFabric(std::move(first), {.rank = 0,
                                              .addresses = addresses,
                                              .token = other,
                                              .connect_deadline = milliseconds(1000)}),
                 Error);
  });
  try {
    const TcpFabric fabric(std::move(second),
                           {.rank = 1, .addresses = addresses, .token = test_token()});
    FAIL() << "two jobs met";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("refused worker 1: it ended, or is of another job"));
  }
  thread.join();
  try {
    const TcpFabric fabric(TcpListener(),
                           {.rank = 1, .addresses = addresses, .token = test_token()});
    FAIL() << "nobody listens there";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker 0 at " + addresses[0].text()));
  }
}

TEST(Tcp, SaysWhenAPortIsInUse) {
  const TcpListener first;
  try {
    const TcpListener second(first.address());
    FAIL() << "the port was to be had";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("can't listen on " + first.address().text()));
    EXPECT_THAT(error.hint(), HasSubstr("choose another"));
  }
  EXPECT_THROW(TcpListener({.host = "starling"}), Error);
  EXPECT_EQ((TcpAddress{"::1", 5}).text(), "[::1]:5");
}

TEST_F(OneSide, AHostileLengthLosesThePeerBeforeAnythingIsAllocated) {
  meet(
      [](Fabric& fabric) {
        std::vector<std::byte> in(10);
        const Status status = receive(fabric, 1, 4, in, soon(fabric));
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.failure().kind, FailureKind::kPeerGone);
        EXPECT_THAT(status.failure().message, HasSubstr("peer 1 sent what is not a frame"));
      },
      [](Stranger& stranger) {
        stranger.say(frame({.length = uint64_t{1} << 60, .tag = 4}, 0));
        EXPECT_TRUE(stranger.hear(1).empty());
      });
}

TEST_F(OneSide, NoiseInsteadOfAFrameLosesThePeer) {
  meet(
      [](Fabric& fabric) {
        EXPECT_EQ(receive(fabric, 1, 4, {}, soon(fabric)).failure().kind, FailureKind::kPeerGone);
      },
      [](Stranger& stranger) {
        stranger.say(std::vector<std::byte>(1000, std::byte{0xAA}));
        EXPECT_TRUE(stranger.hear(1).empty());
      });
}

TEST_F(OneSide, AMessageInPlaceIsRefusedHere) {
  meet(
      [](Fabric& fabric) {
        EXPECT_EQ(receive(fabric, 1, 4, {}, soon(fabric)).failure().kind, FailureKind::kPeerGone);
      },
      [](Stranger& stranger) {
        stranger.say(frame({.kind = FrameKind::kInPlace, .length = 8, .tag = 4}, 8));
        EXPECT_TRUE(stranger.hear(1).empty());
      });
}

TEST_F(OneSide, ATruncatedFrameIsAPeerGone) {
  meet(
      [](Fabric& fabric) {
        std::vector<std::byte> in(100);
        const Status status = receive(fabric, 1, 4, in, soon(fabric));
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.failure().kind, FailureKind::kPeerGone);
        EXPECT_THAT(status.failure().message, HasSubstr("closed the connection"));
        EXPECT_THAT(status.failure().message, HasSubstr("40 of 100 bytes"));
      },
      [](Stranger& stranger) {
        stranger.say(frame({.length = 100, .tag = 4}, 40));
        stranger.hang_up();
      });
}

TEST_F(OneSide, AMessageThatComesByteByByteIsWhole) {
  meet(
      [](Fabric& fabric) {
        for (int i = 0; i < 3; ++i) {
          std::vector<std::byte> in(20, std::byte{1});
          EXPECT_TRUE(receive(fabric, 1, 4, in, soon(fabric)).ok());
          EXPECT_EQ(in, std::vector<std::byte>(20));
        }
      },
      [](Stranger& stranger) {
        for (int i = 0; i < 3; ++i) {
          for (const std::byte byte : frame({.length = 20, .tag = 4}, 20)) {
            stranger.say(std::span(&byte, 1));
          }
        }
        EXPECT_TRUE(stranger.hear(1).empty());
      });
}

// More than the buffer takes waits in the connection, and comes when it is asked for.
TEST_F(OneSide, UnexpectedMessagesAreHeldBackAtTheLimit) {
  constexpr size_t kBytes = 300'000, kCount = 10;
  std::atomic<bool> said = false;
  meet(
      [&](Fabric& fabric) {
        // Read as much as is taken without a receive.
        while (!said) fabric.progress(fabric.now() + milliseconds(1));
        fabric.progress(fabric.now());
        for (size_t i = 0; i < kCount; ++i) {
          std::vector<std::byte> in(kBytes, std::byte{1});
          const Status status = receive(fabric, 1, 4, in, soon(fabric));
          ASSERT_TRUE(status.ok()) << status.failure().message;
          EXPECT_EQ(in.back(), std::byte{0});
        }
        std::vector<std::byte> big(2 << 20);  // larger than the limit: waits for its receive
        EXPECT_TRUE(receive(fabric, 1, 5, big, soon(fabric)).ok());
      },
      [&](Stranger& stranger) {
        for (size_t i = 0; i < kCount; ++i) {
          if (i == 3) said = true;
          const std::vector<std::byte> bytes = frame({.length = kBytes, .tag = 4}, kBytes);
          stranger.say(bytes);
        }
        stranger.say(frame({.length = 2 << 20, .tag = 5}, 2 << 20));
        EXPECT_TRUE(stranger.hear(1).empty());
      });
}

TEST(Tcp, SpreadsTagsOverSeveralConnectionsAndKeepsTheirOrder) {
  std::vector<TcpListener> listeners(3);
  std::vector<TcpAddress> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  run_threads(3, [&](int rank) {
    TcpFabric fabric(std::move(listeners[static_cast<size_t>(rank)]), {.rank = rank,
                                                                       .addresses = addresses,
                                                                       .token = test_token(),
                                                                       .view = 4,
                                                                       .connections_per_peer = 3});
    EXPECT_EQ(fabric.view(), 4u);
    const int next = (rank + 1) % 3, before = (rank + 2) % 3;
    std::vector<std::vector<std::byte>> out, in;
    std::vector<Ticket> tickets;
    for (uint64_t number = 0; number < 60; ++number) {
      const size_t length = number % 7 == 0 ? 400'000 : 10 + number;
      out.push_back(pattern(length, number));
      tickets.push_back(fabric.start_send(next, number % 5, out.back()));
      in.emplace_back(length);
      tickets.push_back(fabric.start_receive(before, number % 5, in.back()));
    }
    for (const Ticket ticket : tickets) {
      const Result<size_t> done = wait(fabric, ticket, soon(fabric));
      ASSERT_TRUE(done.ok()) << done.failure().message;
    }
    for (size_t i = 0; i < in.size(); ++i) ASSERT_TRUE(in[i] == out[i]) << i;
  });
}

}  // namespace
}  // namespace starling
