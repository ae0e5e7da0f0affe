#include "cluster/worker_error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

namespace starling {
namespace {

using Errors = std::vector<WorkerError>;

class WorkerErrorPipe : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(ends_.data(), O_NONBLOCK), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  std::array<int, 2> ends_{};
};

TEST_F(WorkerErrorPipe, GivesWhatWasSent) {
  const WorkerError one{2, 1, true, "all_reduce step 3: peer 1 is gone", "use --resume"};
  const WorkerError other{1, 2, false, "", ""};
  EXPECT_EQ(receive_worker_errors(ends_[0]), Errors());
  EXPECT_TRUE(send_worker_error(ends_[1], one));
  EXPECT_TRUE(send_worker_error(ends_[1], other));
  EXPECT_EQ(receive_worker_errors(ends_[0]), Errors({one, other}));
}

TEST_F(WorkerErrorPipe, CutsLongTextsBetweenCharacters) {
  std::string long_text;
  for (int i = 0; i < 5000; ++i) long_text += "é";
  ASSERT_TRUE(send_worker_error(ends_[1], {0, 1, false, long_text, long_text}));
  const Errors got = receive_worker_errors(ends_[0]);
  ASSERT_EQ(got.size(), 1u);
  for (const std::string& text : {got[0].message, got[0].hint}) {
    EXPECT_GT(text.size(), 900u);
    EXPECT_EQ(text.size() % 2, 0u);
    EXPECT_TRUE(long_text.starts_with(text));
  }
}

TEST_F(WorkerErrorPipe, NonsenseIsNoError) {
  std::array<char, PIPE_BUF> nonsense;
  nonsense.fill('\xff');
  ASSERT_EQ(write(ends_[1], nonsense.data(), nonsense.size()), PIPE_BUF);
  EXPECT_EQ(receive_worker_errors(ends_[0]), Errors());
}

TEST_F(WorkerErrorPipe, SaysWhenNobodyReads) {
  signal(SIGPIPE, SIG_IGN);
  close(std::exchange(ends_[0], -1));
  EXPECT_FALSE(send_worker_error(ends_[1], {}));
  signal(SIGPIPE, SIG_DFL);
}

TEST(ErrorsToTell, TheSameIsToldOnce) {
  const WorkerError chief{0, 2, false, "a", "h"}, other{1, 2, false, "a", "h"},
      third{2, 2, false, "b", "h"};
  EXPECT_EQ(errors_to_tell({third, other, chief}), Errors({chief, third}));
}

TEST(ErrorsToTell, ACauseSilencesWhatFollowedFromIt) {
  const WorkerError cause{2, 2, false, "bad", ""}, followed{0, 1, true, "peer 2 is gone", ""},
      too{1, 1, true, "peer 2 closed", ""};
  EXPECT_EQ(errors_to_tell({followed, cause, too}), Errors({cause}));
  EXPECT_EQ(errors_to_tell({too, followed}), Errors({followed, too}));
  EXPECT_EQ(errors_to_tell({}), Errors());
}

}  // namespace
}  // namespace starling
