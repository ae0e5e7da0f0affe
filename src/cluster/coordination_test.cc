#include "cluster/coordination.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iterator>
#include <numeric>

#include "error_of.h"
#include "fabric/fabric_testing.h"
#include "param/orders_words.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// While one exists, this process has less.
class Limit {
 public:
  Limit(__rlimit_resource what, rlim_t most) : what_(what) {
    getrlimit(what_, &before_);
    const rlimit less{.rlim_cur = most, .rlim_max = before_.rlim_max};
    setrlimit(what_, &less);
  }
  ~Limit() { setrlimit(what_, &before_); }

 private:
  const __rlimit_resource what_;
  rlimit before_{};
};

// Three workers that share memory, of whom the second is lost.
class AWorkerIsLost : public testing::Test {
 protected:
  AWorkerIsLost() {
    for (const int worker : {0, 1, 2}) {
      auto [launcher, own] = control_sockets();
      coordination_.add(worker, std::move(launcher), 0, false);
      workers_.push_back(std::move(own));
    }
    coordination_.lose(1, "somebody killed it");
    for (const int worker : {0, 2}) {
      EXPECT_EQ(next(worker).commit.kind, commit::Message::Kind::kPrepare);
      ControlMessage ready;
      ready.kind = ControlMessage::Kind::kCommit;
      ready.commit = {
          .kind = commit::Message::Kind::kReady, .view = 2, .from = worker, .has_state = true};
      EXPECT_TRUE(send_control(workers_[static_cast<size_t>(worker)].fd(), ready));
    }
  }

  ControlMessage next(int worker) {
    bool ended = false;
    auto message = receive_control(workers_[static_cast<size_t>(worker)].fd(), ended);
    EXPECT_TRUE(message) << worker;
    return message ? std::move(*message) : ControlMessage();
  }
  void hear_both() {
    coordination_.hear(0);
    coordination_.hear(2);
  }

  const SharedSegment first_ = ShmFabric::make_segment({.world = 3});
  Coordination coordination_{{.workers = 3, .segment = &first_}};
  std::vector<Socket> workers_;
};

TEST_F(AWorkerIsLost, WithLittleMemoryTheOthersTalkThroughShortRings) {
  {
    const Limit limit(RLIMIT_FSIZE, 100'000);
    hear_both();
  }
  std::vector<ControlMessage> resumed;
  for (const int worker : {0, 2}) {
    resumed.push_back(next(worker));
    EXPECT_EQ(resumed.back().commit.kind, commit::Message::Kind::kResume);
    ASSERT_TRUE(resumed.back().segment);
    EXPECT_NE(fcntl(resumed.back().segment.fd(), F_GETFD) & FD_CLOEXEC, 0);
  }
  run_threads(2, [&](int rank) {
    ShmFabric fabric(resumed[static_cast<size_t>(rank)].segment.fd(), rank);
    const std::vector<std::byte> sent = pattern(1 << 20, 7);
    std::vector<std::byte> in(sent.size());
    const Status status = rank == 0 ? send(fabric, 1, 1, sent, soon(fabric))
                                    : receive(fabric, 0, 1, in, soon(fabric));
    EXPECT_TRUE(status.ok());
    if (rank == 1) {
      EXPECT_TRUE(in == sent);
    }
    EXPECT_TRUE(fabric.barrier().pass(soon(fabric)).ok());
  });
  EXPECT_TRUE(coordination_.unsettled().empty());
}

TEST_F(AWorkerIsLost, WithNoMemoryTheErrorSaysWhoItWas) {
  const Error error = [&] {
    const Limit limit(RLIMIT_FSIZE, 1000);
    return error_of([&] { hear_both(); });
  }();
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("worker 1 was lost: somebody killed it; no new view can be made: "),
                    HasSubstr("of shared memory: files are limited to 1000 bytes")));
  EXPECT_THAT(error.hint(), HasSubstr("--resume"));
}

// A worker that is given none would take the segment of the view before.
TEST_F(AWorkerIsLost, WithoutADescriptorForItsWorkerASegmentIsAnError) {
  const int next_free = fcntl(first_.fd(), F_DUPFD_CLOEXEC, 0);
  close(next_free);
  // UBSan wants descriptors when it first meets an object with virtual functions of some class.
  EXPECT_STREQ(run_error("met", "").what(), "met");
  const Error error = [next_free](Coordination& coordination) {
    const Limit limit(RLIMIT_NOFILE, static_cast<rlim_t>(next_free) + 1);
    return error_of([&] {
      for (const int worker : {0, 2}) coordination.hear(worker);
    });
  }(coordination_);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 1 was lost: "),
                                  HasSubstr("no descriptor for a shared segment")));
}

// One message of them would be longer than a message can be with many workers, and longer than what
// a socket holds with more.
TEST(Coordination, OrdersForManyWorkersArriveAsTheConductorGaveThem) {
  for (const int workers : {2, 128, 1024}) {
    Stretch stretch{.workers = std::vector<int>(static_cast<size_t>(workers)),
                    .free = SampleRanges({0, 1'000'000}),
                    .batch = 1024,
                    .version = 0,
                    .consistency = {.name = "async"},
                    .ahead = kAheadMost,
                    .speeds = std::vector<double>(static_cast<size_t>(workers))};
    std::iota(stretch.workers.begin(), stretch.workers.end(), 0);
    Coordination coordination({.workers = workers});
    auto [launcher, worker] = control_sockets();
    coordination.add(0, std::move(launcher), 0, false);
    ControlMessage begin;
    begin.kind = ControlMessage::Kind::kStretch;
    begin.commit.view = coordination.view();
    begin.words = to_words(stretch);
    ASSERT_TRUE(send_control(worker.fd(), begin));

    const std::vector<Order> given = Conductor(stretch).begin();
    ASSERT_EQ(given.size(), static_cast<size_t>(workers) * (1 + kAheadMost));
    std::vector<Order> heard;
    bool ended = false;
    for (size_t looks = 0; looks < given.size() && heard.size() < given.size(); ++looks) {
      coordination.hear(0);  // which sends on what the socket did not hold
      while (const auto message = receive_control(worker.fd(), ended)) {
        EXPECT_EQ(message->kind, ControlMessage::Kind::kOrders);
        EXPECT_EQ(message->commit.view, coordination.view());
        auto orders = orders_of(message->words);
        ASSERT_TRUE(orders);
        std::move(orders->begin(), orders->end(), std::back_inserter(heard));
      }
      ASSERT_FALSE(ended) << workers;
    }
    EXPECT_EQ(heard, given) << workers;
  }
}

}  // namespace
}  // namespace starling
