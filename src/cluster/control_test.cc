#include "cluster/control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace starling {
namespace {

TEST(Control, AMessageArrivesAsItWasSent) {
  const auto [here, there] = control_sockets();
  ControlMessage message;
  message.kind = ControlMessage::Kind::kCommit;
  message.progress = 41;
  message.commit = {.kind = commit::Message::Kind::kResume,
                    .view = 7,
                    .from = 2,
                    .step = 99,
                    .finite = false,
                    .redo = true,
                    .has_state = true,
                    .progress = {12, commit::Phase::kApplied},
                    .reduced_in = 6,
                    .members = {0, 2, 5},
                    .newcomers = {5},
                    .donor = 2};
  message.news = "worker 1 was lost";
  message.ports = {1, 65535};
  ASSERT_TRUE(send_control(here.fd(), message));
  bool ended = false;
  const auto got = receive_control(there.fd(), ended);
  ASSERT_TRUE(got);
  EXPECT_FALSE(ended);
  EXPECT_EQ(got->kind, message.kind);
  EXPECT_EQ(got->progress, 41u);
  EXPECT_EQ(got->commit.kind, message.commit.kind);
  EXPECT_EQ(got->commit.view, 7);
  EXPECT_EQ(got->commit.from, 2);
  EXPECT_EQ(got->commit.step, 99);
  EXPECT_FALSE(got->commit.finite);
  EXPECT_TRUE(got->commit.redo);
  EXPECT_TRUE(got->commit.has_state);
  EXPECT_EQ(got->commit.progress, message.commit.progress);
  EXPECT_EQ(got->commit.reduced_in, 6);
  EXPECT_EQ(got->commit.members, message.commit.members);
  EXPECT_EQ(got->commit.newcomers, message.commit.newcomers);
  EXPECT_EQ(got->commit.donor, 2);
  EXPECT_EQ(got->news, message.news);
  EXPECT_EQ(got->ports, message.ports);
  EXPECT_FALSE(got->segment);
}

TEST(Control, ADescriptorComesAlong) {
  const auto [here, there] = control_sockets();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Socket reads(ends[0]);
  ControlMessage message;
  message.segment = Socket(ends[1]);
  ASSERT_TRUE(send_control(here.fd(), message));
  message.segment = Socket();
  bool ended = false;
  const auto got = receive_control(there.fd(), ended);
  ASSERT_TRUE(got && got->segment);
  ASSERT_EQ(write(got->segment.fd(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(reads.fd(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Control, NothingBlocks) {
  auto [here, there] = control_sockets();
  bool ended = false;
  EXPECT_FALSE(receive_control(there.fd(), ended));
  EXPECT_FALSE(ended);
  int sent = 0;
  while (send_control(here.fd(), {}) && sent < 1'000'000) ++sent;  // nobody reads
  EXPECT_LT(sent, 1'000'000);
  there = Socket();
  EXPECT_FALSE(send_control(here.fd(), {}));
  EXPECT_FALSE(receive_control(here.fd(), ended));
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace starling
