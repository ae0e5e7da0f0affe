#include "cluster/guardian.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "cluster/worker_starter.h"

namespace starling {
namespace {

constexpr int kDeadlineMs = 60'000;  // only a failure waits so long
constexpr pid_t kGoodbye = -1;

// A launcher with a guardian, and two processes of its group: a worker, and what it has started,
// which has no end of the workers' pipe.
class GuardianTest : public testing::Test {
 protected:
  void start(std::chrono::milliseconds farewell) {
    launcher_ = fork();
    if (launcher_ == 0) launch(farewell);
    for (Socket* const process : {&worker_, &started_}) {
      *process = Socket(static_cast<int>(syscall(SYS_pidfd_open, next_word(), 0)));
      ASSERT_TRUE(*process);
    }
  }

  void kill_launcher() const {
    kill(launcher_, SIGKILL);
    waitpid(launcher_, nullptr, 0);
  }
  void let_worker_end() { gate_.write_end = Socket(); }

  pid_t next_word() const {
    pid_t word = 0;
    pollfd polled{told_.read_end.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, kDeadlineMs), 1);
    EXPECT_EQ(read(polled.fd, &word, sizeof word), ssize_t{sizeof word});
    return word;
  }

  static bool has_ended(const Socket& process) {
    pollfd polled{process.fd(), POLLIN, 0};
    return poll(&polled, 1, kDeadlineMs) == 1;
  }

  Pipe told_{"the numbers of processes"}, gate_{"the worker's end"};
  Socket worker_, started_;  // descriptors of processes

 private:
  [[noreturn]] void launch(std::chrono::milliseconds farewell) {
    const Pipe workers("workers");
    const Guardian guardian({.farewell = farewell, .workers = workers.read_end.fd()});
    gate_.write_end = Socket();
    for (const bool is_worker : {true, false}) {
      const pid_t process = fork();
      if (process == 0) become(is_worker, workers, guardian.group());
      setpgid(process, guardian.group());
      tell(told_.write_end.fd(), process);
    }
    while (true) pause();
  }
  [[noreturn]] void become(bool is_worker, const Pipe& workers, pid_t group) const {
    setpgid(0, group);
    // It has no other descriptors: a worker keeps none of the launcher's through exec.
    dup2(gate_.read_end.fd(), STDIN_FILENO);
    dup2(told_.write_end.fd(), STDOUT_FILENO);
    dup2(is_worker ? workers.write_end.fd() : STDIN_FILENO, STDERR_FILENO);
    close_range(3, ~0u, 0);
    while (!is_worker) pause();
    pollfd gate{STDIN_FILENO, POLLIN, 0};
    poll(&gate, 1, -1);
    tell(STDOUT_FILENO, kGoodbye);
    _exit(0);
  }
  static void tell(int pipe, pid_t word) { static_cast<void>(!write(pipe, &word, sizeof word)); }

  pid_t launcher_ = -1;
};

TEST_F(GuardianTest, EndsTheGroupWithTheLauncher) {
  start(std::chrono::milliseconds(0));
  kill_launcher();
  EXPECT_TRUE(has_ended(worker_));
  EXPECT_TRUE(has_ended(started_));
}

TEST_F(GuardianTest, LetsWorkersEndAndThenEndsTheRest) {
  start(std::chrono::hours(1));
  kill_launcher();
  let_worker_end();
  EXPECT_TRUE(has_ended(worker_));
  EXPECT_EQ(next_word(), kGoodbye) << "it was not killed";
  EXPECT_TRUE(has_ended(started_));
}

TEST_F(GuardianTest, EndsWorkersThatDoNotEndInTime) {
  start(std::chrono::milliseconds(1));
  kill_launcher();
  EXPECT_TRUE(has_ended(worker_));
  EXPECT_TRUE(has_ended(started_));
}

}  // namespace
}  // namespace starling
