#include "cluster/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "error_of.h"
#include "param/orders_words.h"

namespace starling {
namespace {

using testing::HasSubstr;

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

TEST(Control, AMessageIsAsLongAsItMayBe) {
  const auto [here, there] = control_sockets();
  // One update of the gradients of as many workers as there can be.
  Order order{.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {}};
  for (int worker = 0; worker < 1024; ++worker)
    order.pushes.push_back({.worker = worker, .samples = {1, 2}, .sums = {1, 2, 3, 4, 5}});
  const std::vector<Order> orders(1, order);
  ControlMessage message;
  message.kind = ControlMessage::Kind::kOrders;
  message.words = to_words(orders);
  ASSERT_TRUE(send_control(here.fd(), message));
  bool ended = false;
  auto got = receive_control(there.fd(), ended);
  ASSERT_TRUE(got);
  EXPECT_EQ(orders_of(got->words), orders);

  message.words.clear();
  message.news = std::string(kControlBytesMost, 'x');
  const std::string why = error_of([&] { send_control(here.fd(), message); }).what();
  EXPECT_THAT(why, HasSubstr(fmt::format("and {} is the most", kControlBytesMost)));
  size_t bytes = 0;  // of the message
  ASSERT_EQ(sscanf(why.c_str(), "a message of %zu bytes", &bytes), 1) << why;
  message.news.resize(kControlBytesMost - (bytes - kControlBytesMost));
  ASSERT_TRUE(send_control(here.fd(), message));
  got = receive_control(there.fd(), ended);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->news, message.news);
  message.news += 'x';
  EXPECT_THAT(error_of([&] { send_control(here.fd(), message); }).what(), HasSubstr("is the most"));
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
