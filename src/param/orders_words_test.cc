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
          .sums = {-0.25, INFINITY, 1e-300}};
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
      {.kind = Order::Kind::kDrop, .worker = 0, .samples = {}, .pushes = {}},
      {}};
  EXPECT_EQ(orders_of(to_words(orders)), orders);
  expect_only_whole(to_words(orders), [](auto words) { return orders_of(words).has_value(); });
  EXPECT_EQ(push_of(to_words(some_push())), some_push());
  expect_only_whole(to_words(some_push()), [](auto words) { return push_of(words).has_value(); });
}

TEST(OrdersWords, AStretchComesBack) {
  Stretch stretch{.workers = {0, 4},
                  .free = SampleRanges({0, 100}),
                  .lease = 8,
                  .version = 12,
                  .consistency = {.name = "ssp", .staleness = 5, .backup = 2}};
  stretch.free.remove({20, 30});
  const std::optional<Stretch> read = stretch_of(to_words(stretch));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->workers, stretch.workers);
  EXPECT_EQ(read->free, stretch.free);
  EXPECT_EQ(read->lease, 8u);
  EXPECT_EQ(read->version, 12u);
  EXPECT_EQ(read->consistency.name, "ssp");
  EXPECT_EQ(read->consistency.staleness, 5);
  EXPECT_EQ(read->consistency.backup, 2);
  expect_only_whole(to_words(stretch), [](auto words) { return stretch_of(words).has_value(); });
}

}  // namespace
}  // namespace starling
