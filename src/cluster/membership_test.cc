#include "cluster/membership.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

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

// Whether a thread of this process sleeps in the kernel.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');  // "id (name) state …"
  return end != std::string::npos && text.compare(end, 3, ") S") == 0;
}

// The coordinator waits for what a worker says of itself, and nobody says it twice.
TEST(Membership, WhatTheCoordinatorWaitsForIsSentHoweverLateTheLauncherReads) {
  auto [launcher, worker] = control_sockets();
  const int line = worker.fd();
  Membership membership(std::move(worker));
  membership.enter(3);
  while (send_control(line, {})) continue;  // until it holds no more

  std::atomic<pid_t> thread{0};
  std::atomic<bool> returned{false};
  const std::jthread sender([&] {
    thread = static_cast<pid_t>(syscall(SYS_gettid));
    EXPECT_TRUE(membership.send({.kind = commit::Message::Kind::kReady,
                                 .view = 7,
                                 .from = 2,
                                 .has_state = true,
                                 .progress = {12, commit::Phase::kReduced}}));
    returned = true;
  });
  // It has tried in vain: it waits, or has given up.
  while (!returned && !(thread != 0 && sleeps(thread))) std::this_thread::yield();

  bool has_come = false;
  for (const auto end = Clock::now() + kSoon; !has_come && Clock::now() < end;) {
    const auto message = hear(launcher);
    ASSERT_TRUE(message);
    has_come = message->kind == ControlMessage::Kind::kCommit;
    if (has_come) {
      EXPECT_EQ(message->commit.kind, commit::Message::Kind::kReady);
      EXPECT_EQ(message->commit.view, 7) << "not the one that it is in";
      EXPECT_EQ(message->commit.from, 2);
      EXPECT_EQ(message->commit.progress, (commit::Progress{12, commit::Phase::kReduced}));
    }
  }
  EXPECT_TRUE(has_come);
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
