#include "cluster/coordination.h"

#include <gtest/gtest.h>

#include <iterator>
#include <numeric>

#include "param/orders_words.h"

namespace starling {
namespace {

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
