// Real processes: one is killed inside each collective, and every survivor ends with a failure that
// names it, long before the deadline.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/collective_testing.h"
#include "fabric/fabric_testing.h"

namespace starling {
namespace {

constexpr int kProcesses = 3;
constexpr int kVictim = 1;
constexpr size_t kFloats = 6 << 20;  // more than the kernel buffers of a connection hold

struct KilledCase {
  TestedFabric fabric;
  const char* name;
};
void PrintTo(const KilledCase& c, std::ostream* out) { *out << c.fabric << " " << c.name; }

// The buffers of one rank, and the operation that the case names, in which the victim has a part
// that nobody can do without.
class Participant {
 public:
  Participant(Fabric& fabric, const std::string& name)
      : all_(fabric, std::make_shared<Placement>(Placement::even(3, kProcesses)), {.exact = false}),
        own_(kFloats, 1.0f),
        out_(kFloats) {
    const std::vector<const float*> partials = {own_.data()};
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out_));
    const bool victim = fabric.rank() == kVictim;
    if (name == "all_reduce_direct") {
      handle_ = all_.all_reduce(partials, out_, AllReduceAlgorithm::kDirect);
    } else if (name == "all_reduce_ring") {
      handle_ = all_.all_reduce(partials, out_, AllReduceAlgorithm::kRing);
    } else if (name == "reduce_scatter") {
      handle_ = all_.reduce_scatter(
          partials, kFloats, std::span(out_).first(all_.slice_of(kFloats, all_.rank()).size()));
    } else if (name == "all_gather") {
      handle_ = all_.all_gather(bytes, {0, 0, bytes.size(), bytes.size()});
    } else if (name == "broadcast") {
      handle_ = all_.broadcast(kVictim, bytes);
    } else if (name == "gather") {
      all_bytes_.resize(victim ? 2 * bytes.size() : 0);
      handle_ = all_.gather(kVictim, bytes.first(victim ? 0 : bytes.size()), all_bytes_,
                            {0, bytes.size(), bytes.size(), 2 * bytes.size()});
    } else {
      handle_ = all_.barrier();
    }
  }

  Status wait() { return all_.wait(handle_); }

 private:
  Collectives all_;
  std::vector<float> own_, out_;
  std::vector<std::byte> all_bytes_;
  Collectives::Handle handle_;
};

// What a rank's process ends with.
enum Code { kNamed = 0, kDone = 1, kOther = 2 };

Code survive(Fabric& fabric, const std::string& name) {
  Participant participant(fabric, name);
  const Status status = participant.wait();
  if (status) return kDone;
  const Failure& failure = status.failure();
  const bool named = failure.peer == kVictim && failure.kind == FailureKind::kPeerGone &&
                     failure.message.starts_with(name);
  if (!named) fprintf(stderr, "rank %d: %s\n", fabric.rank(), failure.message.c_str());
  return named ? kNamed : kOther;
}

struct Pipes {
  int given_up[2];  // a byte from each survivor
  int leave[2];     // closed by the parent
};

// The body of one process. The victim ends itself when all are there: it takes part in a barrier,
// and then, in all operations but that one, in the first messages. Survivors tell the parent that
// they have given up, and stay until it lets them go: one that is seen to leave may be blamed.
void run_rank(Fabric& fabric, const std::string& name, const Pipes& pipes) {
  Code code = kOther;
  {
    Collectives first(fabric, std::make_shared<Placement>(Placement::even(3, kProcesses)),
                      {.channel = 2});
    if (!first.wait(first.barrier())) _exit(kOther);
  }
  if (fabric.rank() == kVictim) {
    std::optional<Participant> participant;
    if (name != "barrier") participant.emplace(fabric, name);
    raise(SIGKILL);
  }
  code = survive(fabric, name);
  char byte = 0;
  if (write(pipes.given_up[1], &byte, 1) != 1) code = kOther;
  static_cast<void>(!read(pipes.leave[0], &byte, 1));  // returns when the parent closes its end
  fabric.close();
  _exit(code);
}

class KilledRank : public testing::TestWithParam<KilledCase> {};

TEST_P(KilledRank, IsNamedByEverySurvivor) {
  const SharedSegment segment = ShmFabric::make_segment({.world = kProcesses});
  std::vector<TcpListener> listeners(kProcesses);
  std::vector<TcpAddress> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  Pipes pipes;
  ASSERT_EQ(pipe(pipes.given_up), 0);
  ASSERT_EQ(pipe(pipes.leave), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    alarm(60);  // a hang ends as a failure
    close(pipes.leave[1]);
    if (GetParam().fabric == TestedFabric::kShm) {
      ShmFabric fabric(segment.fd(), rank);
      run_rank(fabric, GetParam().name, pipes);
    }
    TcpListener own = std::move(listeners[static_cast<size_t>(rank)]);
    listeners.clear();
    TcpFabric fabric(std::move(own), {.rank = rank,
                                      .addresses = addresses,
                                      .token = test_token(),
                                      .link = link_of(GetParam().fabric)});
    run_rank(fabric, GetParam().name, pipes);
  }
  listeners.clear();
  const auto began = std::chrono::steady_clock::now();
  close(pipes.given_up[1]);
  char byte = 0;
  for (int survivors = 0; survivors < kProcesses - 1; ++survivors) {
    if (read(pipes.given_up[0], &byte, 1) != 1) break;  // all have ended
  }
  for (const int end : {pipes.given_up[0], pipes.leave[0], pipes.leave[1]}) close(end);
  for (int rank = 0; rank < kProcesses; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<size_t>(rank)], &status, 0),
              children[static_cast<size_t>(rank)]);
    if (rank == kVictim) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank;
      // One that had all of the victim's messages already is done.
      EXPECT_NE(WEXITSTATUS(status), kOther) << "rank " << rank;
    }
  }
  // The default deadline is 30 s: nobody waited for it.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

std::vector<KilledCase> killed_cases() {
  std::vector<KilledCase> cases;
  for (const TestedFabric fabric :
       {TestedFabric::kShm, TestedFabric::kTcp, TestedFabric::kPacedTcp}) {
    for (const char* name : {"all_reduce_direct", "all_reduce_ring", "reduce_scatter", "all_gather",
                             "broadcast", "gather", "barrier"}) {
      cases.push_back({fabric, name});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(In, KilledRank, testing::ValuesIn(killed_cases()), [](const auto& test) {
  return name_of(test.param.fabric) + "_" + test.param.name;
});

}  // namespace
}  // namespace starling
