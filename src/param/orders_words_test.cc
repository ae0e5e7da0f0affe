#include "param/orders_words.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling {
namespace {

Push some_push() {
  return {.worker = 3,
          .samples = {10, 26},
          .version = 7,
          .finite = false,
          .seconds = 0.125,
          .sums = {-0.25, INFINITY, 1e-300},
          .met = 2,
          .computed = 0xfedcba9876543210};
}

// What is cut off, or longer than it should be, is nothing.
template <typename Read>
void expect_only_whole(std::vector<uint64_t> words, Read read) {
  for (size_t length = 0; length < words.size(); ++length)
    EXPECT_FALSE(read(std::span(words).first(length))) << length;
  words.push_back(0);
  EXPECT_FALSE(read(std::span<const uint64_t>(words)));
}

TEST(OrdersWords, OrdersComeBack) {
  const std::vector<Order> orders = {
      {.kind = Order::Kind::kLend, .worker = 2, .samples = {5, 9}, .pushes = {}},
      {.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {some_push(), Push{}}},
      {.kind = Order::Kind::kDrop, .worker = 0, .samples = {}, .pushes = {some_push()}},
      {}};
  EXPECT_EQ(orders_of(to_words(orders)), orders);
  expect_only_whole(to_words(orders), [](auto words) { return orders_of(words).has_value(); });
  EXPECT_EQ(push_of(to_words(some_push())), some_push());
  expect_only_whole(to_words(some_push()), [](auto words) { return push_of(words).has_value(); });
}

Stretch some_stretch() {
  Stretch stretch{.workers = {0, 4},
                  .free = SampleRanges({0, 100}),
                  .batch = 8,
                  .version = 12,
                  .consistency = {.name = "ssp", .staleness = 5, .backup = 2},
                  .partition = PartitionKind::kWeighted,
                  .ahead = 2,
                  .speeds = {0, 12.5}};
  stretch.free.remove({20, 30});
  return stretch;
}

TEST(OrdersWords, AStretchComesBack) {
  const Stretch stretch = some_stretch();
  const std::optional<Stretch> read = stretch_of(to_words(stretch));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->workers, stretch.workers);
  EXPECT_EQ(read->free, stretch.free);
  EXPECT_EQ(read->batch, 8u);
  EXPECT_EQ(read->version, 12u);
  EXPECT_EQ(read->consistency.name, "ssp");
  EXPECT_EQ(read->consistency.staleness, 5);
  EXPECT_EQ(read->consistency.backup, 2);
  EXPECT_EQ(read->partition, PartitionKind::kWeighted);
  EXPECT_EQ(read->ahead, 2u);
  EXPECT_EQ(read->speeds, stretch.speeds);
  expect_only_whole(to_words(stretch), [](auto words) { return stretch_of(words).has_value(); });
}

TEST(OrdersWords, WhatMakesNoSenseIsNothing) {
  for (const double seconds : {-1.0, double{NAN}, double{INFINITY}}) {
    Push push = some_push();
    push.seconds = seconds;
    EXPECT_FALSE(push_of(to_words(push))) << seconds;
    const Order order{
        .kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {some_push(), push}};
    EXPECT_FALSE(orders_of(to_words(std::vector{order}))) << seconds;
    Stretch stretch = some_stretch();
    stretch.speeds[1] = seconds;
    EXPECT_FALSE(stretch_of(to_words(stretch))) << seconds;
  }
  const auto refuses = [](auto change) {
    Stretch stretch = some_stretch();
    change(stretch);
    return !stretch_of(to_words(stretch));
  };
  EXPECT_TRUE(refuses([](Stretch& s) { s.speeds.pop_back(); }));
  EXPECT_TRUE(refuses([](Stretch& s) { s.speeds.push_back(1); }));
  EXPECT_TRUE(refuses([](Stretch& s) { s.batch = 0; }));
  EXPECT_TRUE(refuses([](Stretch& s) { s.workers = {4, 4}; })) << "one worker twice";
  EXPECT_TRUE(refuses([](Stretch& s) { s.workers = {}, s.speeds = {}; }));
  EXPECT_TRUE(refuses([](Stretch& s) { s.partition = static_cast<PartitionKind>(3); }));
  std::vector<uint64_t> words = to_words(some_stretch());
  words[words.size() - 2] = 0;  // where the last range begins
  EXPECT_FALSE(stretch_of(words)) << "samples that are there twice";
  words = to_words(std::vector<Order>{{}});
  words[1] = 256;  // a kind that would wrap to another
  EXPECT_FALSE(orders_of(words));
}

}  // namespace
}  // namespace starling
