#include "param/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/read_file.h"
#include "base/sha256.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

Order lend_to(int worker, SampleRange samples) {
  return {.kind = Order::Kind::kLend, .worker = worker, .samples = samples, .pushes = {}};
}

Push push_by(int worker, SampleRange samples, uint64_t version, bool finite = true) {
  return {.worker = worker, .samples = samples, .version = version, .finite = finite, .sums = {}};
}

Order update_of(std::vector<Push> pushes) {
  return {.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = std::move(pushes)};
}

RecordedStretch a_recorded_stretch() {
  return {.epoch = 2,
          .version = 12,
          .epochs = 4,
          .shards = 2,
          .numbers = "0.1.0 avx2",
          .optimizer = adamw(0.1 + 1e-17, {.weight_decay = 1.0 / 3,
                                           .clip_norm = 0.7,
                                           .schedule = step_decay({.milestones = {3, 9}})}),
          .usual = 16.0 / 3,
          .apart = 3,
          .damping = 0.3,
          .workers = {0, 3, 4},
          .log = {lend_to(0, {10, 26}),
                  lend_to(3, {26, 30}),
                  lend_to(4, {40, 50}),
                  update_of({push_by(3, {26, 30}, 12)}),
                  lend_to(3, {50, 60}),
                  {.kind = Order::Kind::kDrop, .worker = 4, .samples = {}, .pushes = {}},
                  update_of({push_by(3, {50, 60}, 13, false), push_by(0, {10, 26}, 12)}),
                  lend_to(4, {40, 50})},
          .averaged = {0, 4}};
}

std::string record_of(const std::vector<RecordedStretch>& stretches) {
  std::string text = record_header();
  for (const RecordedStretch& stretch : stretches) text += to_text(stretch);
  return text;
}

std::vector<RecordedStretch> read_all(const std::string& text) {
  std::vector<RecordedStretch> all;
  for (RecordReader reader(text, "record.txt"); !reader.is_over();) all.push_back(reader.next());
  return all;
}

TEST(Record, ComesBack) {
  const RecordedStretch given = a_recorded_stretch();
  EXPECT_EQ(given.end_version(), 14u);
  const std::vector<RecordedStretch> read = read_all(record_of({given, given}));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].epoch, 2u);
  EXPECT_EQ(read[0].version, 12u);
  EXPECT_EQ(read[0].epochs, 4u);
  EXPECT_EQ(read[0].shards, given.shards);
  EXPECT_EQ(read[0].usual, given.usual);
  EXPECT_EQ(read[0].apart, given.apart);
  EXPECT_EQ(read[0].damping, given.damping);
  EXPECT_EQ(read[0].numbers, given.numbers);
  EXPECT_EQ(read[0].workers, given.workers);
  EXPECT_EQ(read[0].averaged, given.averaged);
  EXPECT_EQ(read[0].log, given.log);
  EXPECT_EQ(to_text(read[1]), to_text(given)) << "the optimizer too, to the bit";
}

TEST(Record, EveryOptimizerAndScheduleComesBack) {
  for (const std::string_view name : optimizer_names()) {
    for (const Schedule& schedule :
         {constant({.warmup_steps = 5}), step_decay({.every = 7, .gamma = 0.3}),
          cosine({.floor = 1e-3})}) {
      RecordedStretch given = a_recorded_stretch();
      given.optimizer = optimizer_from_name(name, 1.0 / 7);
      given.optimizer.schedule = schedule;
      given.optimizer.clip_value = 0.1;
      const RecordedStretch read = read_all(record_of({given})).at(0);
      EXPECT_EQ(read.optimizer.kind, given.optimizer.kind);
      for (const uint64_t step : {0, 3, 20})
        EXPECT_EQ(rate(read.optimizer, step, 30), rate(given.optimizer, step, 30));
      EXPECT_EQ(read.optimizer.clip_value, 0.1);
      EXPECT_FALSE(read.optimizer.clip_norm);
    }
  }
}

TEST(Record, WhatIsCutOffIsRefused) {
  const std::string text = record_of({a_recorded_stretch()});
  for (size_t length = 0; length < text.size(); ++length) {
    if (length == record_header().size()) continue;  // a record of nothing
    EXPECT_THAT(refusal([&] { read_all(text.substr(0, length)); }), HasSubstr("record.txt"))
        << length;
  }
}

TEST(Record, EveryChangedByteIsFound) {
  const std::string text = record_of({a_recorded_stretch()});
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char other : {'7', ' ', '\n'}) {
      std::string changed = text;
      if (std::exchange(changed[at], other) == other) continue;
      EXPECT_THAT(refusal([&] { read_all(changed); }), HasSubstr("record.txt")) << at;
    }
  }
}

TEST(Record, OrdersThatNobodyCanObeyAreRefused) {
  const auto error = [](std::vector<Order> log) {
    RecordedStretch stretch = a_recorded_stretch();
    stretch.log = std::move(log);
    return refusal([&] { read_all(record_of({stretch})); });  // its SHA-256 is right
  };
  const Order lent = lend_to(0, {10, 20});
  EXPECT_THAT(error({lend_to(1, {10, 20})}), HasSubstr("worker 1 can't be lent"));
  EXPECT_THAT(error({lend_to(0, {10, 10})}), HasSubstr("worker 0 can't be lent"));
  EXPECT_THAT(error(std::vector<Order>(2 + kAheadMost, lent)), HasSubstr("worker 0 can't be lent"));
  EXPECT_THAT(error({lent, lend_to(0, {30, 40}), update_of({push_by(0, {30, 40}, 12)})}),
              HasSubstr("makes update 13"));
  EXPECT_THAT(error({update_of({push_by(0, {10, 20}, 12)})}), HasSubstr("makes update 13"));
  EXPECT_THAT(error({lent, update_of({push_by(0, {10, 19}, 12)})}), HasSubstr("makes update 13"));
  EXPECT_THAT(error({lent, update_of({push_by(0, {10, 20}, 11)})}), HasSubstr("makes update 13"));
  EXPECT_THAT(error({{.kind = Order::Kind::kDrop, .worker = 3, .samples = {}, .pushes = {}}}),
              HasSubstr("worker 3 has no gradient"));
  EXPECT_THAT(error({update_of({})}), HasSubstr("this is no order"));
}

TEST(Record, AnotherFileIsRefused) {
  EXPECT_THAT(refusal([] { read_all("PNG"); }), HasSubstr("not a record"));
  EXPECT_THAT(refusal([] { read_all("starling-record 2\n"); }), HasSubstr("this version"));
  EXPECT_TRUE(read_all(record_header()).empty());
}

// Or the fuzz target would begin with files that are all refused in their first lines.
TEST(Record, SeedsThatAreCalledGoodAreRead) {
  const std::filesystem::path folder =
      std::filesystem::path(STARLING_SOURCE_DIR) / "tests/fuzz/corpus/fuzz_record";
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("good_")) continue;
    SCOPED_TRACE(entry.path().filename());
    std::string text = read_text(entry.path(), size_t{1} << 20);
    if (!text.starts_with(record_header())) text = record_header() + text + sha256_hex(text) + '\n';
    RecordReader reader(text, "seed");
    EXPECT_FALSE(reader.next().log.empty());
    EXPECT_TRUE(reader.is_over());
    ++found;
  }
  EXPECT_GE(found, 4u);
}

}  // namespace
}  // namespace starling
