#include "cluster/membership.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <optional>

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSoon{20};

// The next that a worker says; nothing when it says nothing for long.
std::optional<ControlMessage> hear(const Socket& launcher) {
  bool ended = false;
  for (const auto end = Clock::now() + kSoon; Clock::now() < end && !ended;) {
    if (auto message = receive_control(launcher.fd(), ended)) return message;
    pollfd polled{launcher.fd(), POLLIN, 0};
    poll(&polled, 1, 1000);
  }
  return std::nullopt;
}

// One wait may be within another: what a worker writes while it enters a new view.
TEST(Membership, GetsOnForAsLongAsItWaits) {
  auto [launcher, worker] = control_sockets();
  Membership membership(std::move(worker));
  membership.begin_waiting();
  membership.begin_waiting();
  membership.end_waiting();
  const auto first = hear(launcher);
  ASSERT_TRUE(first);
  bool got_on = false;
  for (const auto end = Clock::now() + kSoon; !got_on && Clock::now() < end;) {
    const auto beat = hear(launcher);
    ASSERT_TRUE(beat);
    got_on = beat->progress > first->progress + 3;
  }
  EXPECT_TRUE(got_on);
}

}  // namespace
}  // namespace starling
