#include "base/stop_requests.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace starling {
namespace {

using Kind = StopRequests::Kind;
using std::chrono::milliseconds;

TEST(StopRequests, TheSameSignalAtOnceIsAnEcho) {
  const auto begin = StopRequests::Clock::now();
  StopRequests requests;
  EXPECT_FALSE(requests.any());
  EXPECT_EQ(requests.take(SIGTERM, begin), Kind::kFirst);
  EXPECT_TRUE(requests.any());
  EXPECT_EQ(requests.take(SIGTERM, begin), Kind::kEcho);
  EXPECT_EQ(requests.take(SIGTERM, begin + milliseconds(249)), Kind::kEcho);
  EXPECT_EQ(requests.take(SIGTERM, begin + milliseconds(250)), Kind::kAgain);
}

TEST(StopRequests, AnotherSignalIsAnotherRequest) {
  const auto begin = StopRequests::Clock::now();
  StopRequests requests;
  EXPECT_EQ(requests.take(SIGTERM, begin), Kind::kFirst);
  EXPECT_EQ(requests.take(SIGINT, begin), Kind::kAgain);
}

}  // namespace
}  // namespace starling
