// Ranks as real processes, over shm and tcp: killed with SIGKILL, frozen with SIGSTOP. Survivors
// get a result in bounded time, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "fabric/fabric_testing.h"

namespace starling {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a rank found wrong: told by its exit code, and in words on standard error.
void require(bool fact, const std::string& words) {
  if (!fact) throw std::runtime_error(words);
}
void require_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.failure().message);
}
void require_gone(const Status& status, int peer) {
  require(!status.ok(), "no failure, though the peer was killed");
  require(status.failure().kind == FailureKind::kPeerGone && status.failure().peer == peer,
          status.failure().message);
}

// A world of processes. Each runs the body and may tell the test that it has come to a point; a
// test waits for that instead of sleeping.
class Processes {
 public:
  struct Rank {
    Fabric& fabric;
    int socket;
    void tell() const { require(write(socket, "x", 1) == 1, "the test has gone"); }
    void wait_for_test() const {
      char byte = 0;
      require(read(socket, &byte, 1) == 1, "the test has gone");
    }
  };

  Processes(TestedFabric kind, int world, const std::function<void(Rank&)>& body)
      : segment_(ShmFabric::make_segment({.world = world})) {
    std::vector<TcpListener> listeners(static_cast<size_t>(world));
    std::vector<TcpAddress> addresses;
    for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
    for (int rank = 0; rank < world; ++rank) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      const pid_t child = fork();
      if (child == 0) {
        close(ends[0]);
        const int code = live(kind, rank, ends[1], listeners, addresses, body);
        std::fflush(stderr);
        _exit(code);
      }
      close(ends[1]);
      children_.push_back(child);
      sockets_.push_back(ends[0]);
    }
  }
  ~Processes() {
    for (const pid_t child : children_) {
      if (child > 0) kill(child, SIGKILL);
    }
    for (size_t rank = 0; rank < children_.size(); ++rank) reap(static_cast<int>(rank));
    for (const int socket : sockets_) close(socket);
  }

  bool wait_told(int rank) {
    pollfd polled{.fd = sockets_[static_cast<size_t>(rank)], .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&polled, 1, 30'000) == 1 && read(polled.fd, &byte, 1) == 1;
  }
  void signal(int rank, int number) const { kill(children_[static_cast<size_t>(rank)], number); }
  // The exit code, or 128 + signal; also of one that was reaped before.
  int reap(int rank) {
    pid_t& child = children_[static_cast<size_t>(rank)];
    if (child <= 0) return 0;
    int status = 0;
    waitpid(child, &status, 0);
    child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Until its process is dead, but not reaped: nobody has told the others.
  void wait_dead(int rank) const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(children_[static_cast<size_t>(rank)]), &info,
           WEXITED | WNOWAIT);
  }
  void wait_stopped(int rank) const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(children_[static_cast<size_t>(rank)]), &info,
           WSTOPPED | WNOWAIT);
  }
  void tell(int rank) const { EXPECT_EQ(write(sockets_[static_cast<size_t>(rank)], "x", 1), 1); }
  const SharedSegment& segment() const { return segment_; }

 private:
  int live(TestedFabric kind, int rank, int socket, std::vector<TcpListener>& listeners,
           const std::vector<TcpAddress>& addresses, const std::function<void(Rank&)>& body) {
    try {
      std::unique_ptr<Fabric> fabric;
      if (kind == TestedFabric::kShm) {
        fabric = std::make_unique<ShmFabric>(segment_.fd(), rank);
      } else {
        fabric = std::make_unique<TcpFabric>(std::move(listeners[static_cast<size_t>(rank)]),
                                             TcpOptions{.rank = rank,
                                                        .addresses = addresses,
                                                        .token = test_token(),
                                                        .link = link_of(kind)});
      }
      Rank self{*fabric, socket};
      body(self);
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      return 1;
    }
  }

  SharedSegment segment_;
  std::vector<pid_t> children_;
  std::vector<int> sockets_;
};

class RealProcesses : public testing::TestWithParam<TestedFabric> {
 protected:
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(files_in_dev_shm(), before_);
  }
  static std::set<std::string> files_in_dev_shm() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  const std::set<std::string> before_ = files_in_dev_shm();
};

// Waits for ever, as far as this test goes.
void stay(Fabric& fabric) {
  for (const Instant end = soon(fabric); fabric.now() < end;) fabric.progress(end);
}

void require_meeting(Fabric& fabric) {
  for (int peer = 0; peer < fabric.world(); ++peer) {
    if (peer == fabric.rank()) continue;
    require_ok(send(fabric, peer, 1, {}, soon(fabric)));
  }
  for (int peer = 0; peer < fabric.world(); ++peer) {
    if (peer == fabric.rank()) continue;
    require_ok(receive(fabric, peer, 1, {}, soon(fabric)));
  }
}

TEST_P(RealProcesses, TalkToEachOther) {
  Processes processes(GetParam(), 4, [](Processes::Rank& self) {
    Fabric& fabric = self.fabric;
    const int next = (fabric.rank() + 1) % 4, before = (fabric.rank() + 3) % 4;
    require_meeting(fabric);
    const std::vector<std::byte> out = pattern(3'000'001, static_cast<uint64_t>(fabric.rank()));
    std::vector<std::byte> in(out.size());
    const Ticket sending = fabric.start_send(next, 2, out);
    require_ok(receive(fabric, before, 2, in, soon(fabric)));
    require(wait(fabric, sending, soon(fabric)).ok(), "not sent");
    require(in == pattern(in.size(), static_cast<uint64_t>(before)), "other bytes came");
    require_meeting(fabric);
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(processes.reap(rank), 0);
}

// Pending, later and half-done transfers, with nobody to tell the survivors but themselves.
TEST_P(RealProcesses, AKilledPeerIsAResultForAllSurvivors) {
  constexpr int kVictim = 2;
  Processes processes(GetParam(), 3, [](Processes::Rank& self) {
    Fabric& fabric = self.fabric;
    require_meeting(fabric);
    if (fabric.rank() == kVictim) {
      self.tell();
      stay(fabric);
      return;
    }
    std::vector<std::byte> in(100);
    const std::vector<std::byte> out(size_t{64} << 20);
    const Ticket sending = fabric.start_send(kVictim, 4, out);
    require_gone(receive(fabric, kVictim, 3, in, fabric.now() + seconds(10)), kVictim);
    require(fabric.gone(kVictim), "not gone");
    const Result<size_t> sent = wait(fabric, sending, soon(fabric));
    require(!sent.ok() && sent.failure().kind == FailureKind::kPeerGone, "sent to the dead");
    require_gone(receive(fabric, kVictim, 5, in, soon(fabric)), kVictim);
    require_gone(send(fabric, kVictim, 5, in, soon(fabric)), kVictim);
    // The two who are left go on.
    const int other = 1 - fabric.rank();
    require_ok(send(fabric, other, 6, in, soon(fabric)));
    require_ok(receive(fabric, other, 6, in, soon(fabric)));
  });
  ASSERT_TRUE(processes.wait_told(kVictim));
  processes.signal(kVictim, SIGKILL);
  processes.wait_dead(kVictim);
  EXPECT_EQ(processes.reap(0), 0);
  EXPECT_EQ(processes.reap(1), 0);
  EXPECT_EQ(processes.reap(kVictim), 128 + SIGKILL);
}

TEST_P(RealProcesses, APeerKilledInTheMiddleOfAMessageIsGone) {
  Processes processes(GetParam(), 2, [](Processes::Rank& self) {
    Fabric& fabric = self.fabric;
    require_meeting(fabric);
    std::vector<std::byte> big(size_t{1} << 20);
    if (fabric.rank() == 1) {
      self.tell();
      // Never ends by itself.
      while (true) require_ok(send(fabric, 0, 2, big, soon(fabric)));
    }
    Status status;
    while (status.ok()) status = receive(fabric, 1, 2, big, soon(fabric));
    require_gone(status, 1);
  });
  ASSERT_TRUE(processes.wait_told(1));
  processes.signal(1, SIGKILL);
  EXPECT_EQ(processes.reap(0), 0);
}

TEST_P(RealProcesses, AFrozenPeerIsADeadlineAndGoesOnWhenItThaws) {
  Processes processes(GetParam(), 2, [](Processes::Rank& self) {
    Fabric& fabric = self.fabric;
    require_meeting(fabric);
    std::byte byte{1};
    self.tell();
    if (fabric.rank() == 1) {
      // Frozen here: the test says so to rank 0 by stopping us, and thaws us when rank 0 has seen
      // it.
      require_ok(receive(fabric, 0, 2, std::span(&byte, 1), soon(fabric)));
      require_ok(send(fabric, 0, 3, std::span(&byte, 1), soon(fabric)));
      return;
    }
    self.wait_for_test();
    require_ok(send(fabric, 1, 2, std::span(&byte, 1), soon(fabric)));
    const Status late =
        receive(fabric, 1, 3, std::span(&byte, 1), fabric.now() + milliseconds(200));
    require(!late.ok() && late.failure().kind == FailureKind::kDeadline, "it was not frozen");
    require(!fabric.gone(1), "frozen is not gone");
    self.tell();
    require_ok(receive(fabric, 1, 3, std::span(&byte, 1), soon(fabric)));
  });
  ASSERT_TRUE(processes.wait_told(0));
  ASSERT_TRUE(processes.wait_told(1));
  processes.signal(1, SIGSTOP);
  processes.wait_stopped(1);
  processes.tell(0);
  ASSERT_TRUE(processes.wait_told(0));
  processes.signal(1, SIGCONT);
  EXPECT_EQ(processes.reap(0), 0);
  EXPECT_EQ(processes.reap(1), 0);
}

TEST_P(RealProcesses, NothingIsLeftWhenAllAreKilled) {
  Processes processes(GetParam(), 3, [](Processes::Rank& self) {
    require_meeting(self.fabric);
    self.tell();
    // Busy in both directions until the end.
    const int next = (self.fabric.rank() + 1) % 3, before = (self.fabric.rank() + 2) % 3;
    std::vector<std::byte> out(100'000), in(100'000);
    while (true) {
      const Ticket sending = self.fabric.start_send(next, 2, out);
      require_ok(receive(self.fabric, before, 2, in, soon(self.fabric)));
      require(wait(self.fabric, sending, soon(self.fabric)).ok(), "not sent");
    }
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(processes.wait_told(rank));
  for (int rank = 0; rank < 3; ++rank) processes.signal(rank, SIGSTOP);
  for (int rank = 0; rank < 3; ++rank) processes.signal(rank, SIGKILL);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.reap(rank), 128 + SIGKILL);
}

// The launcher that reaps a process tells the others, who wait in a barrier; and those who wait
// find it themselves.
class KilledInABarrier : public testing::TestWithParam<bool> {};

TEST_P(KilledInABarrier, IsNamedByTheOthers) {
  const bool told_by_launcher = GetParam();
  Processes processes(TestedFabric::kShm, 3, [](Processes::Rank& self) {
    auto& fabric = dynamic_cast<ShmFabric&>(self.fabric);
    require_ok(fabric.barrier().pass(soon(fabric)));
    if (fabric.rank() == 1) {
      self.tell();
      stay(fabric);
    } else {
      require_gone(fabric.barrier().pass(fabric.now() + seconds(10)), 1);
    }
  });
  ASSERT_TRUE(processes.wait_told(1));
  processes.signal(1, SIGKILL);
  if (told_by_launcher) {
    EXPECT_EQ(processes.reap(1), 128 + SIGKILL);
    ShmFabric::mark_gone_in(processes.segment(), 1);
  } else {
    processes.wait_dead(1);
  }
  EXPECT_EQ(processes.reap(0), 0);
  EXPECT_EQ(processes.reap(2), 0);
}

INSTANTIATE_TEST_SUITE_P(ToldByLauncher, KilledInABarrier, testing::Bool());

INSTANTIATE_TEST_SUITE_P(Fabrics, RealProcesses,
                         testing::Values(TestedFabric::kShm, TestedFabric::kTcp,
                                         TestedFabric::kPacedTcp),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace starling
