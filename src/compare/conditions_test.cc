#include "compare/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "job/faults_file.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> condition_labels(const ConditionLists& lists) {
  std::vector<std::string> all;
  for (const Condition& one : make_conditions(lists)) all.push_back(one.label());
  return all;
}

TEST(Conditions, AreTheProductOfTheLists) {
  EXPECT_THAT(condition_labels({.workers = "2"}), ElementsAre("2 workers"));
  EXPECT_THAT(condition_labels({.workers = "2,4", .slow_worker = "none,4x"}),
              ElementsAre("2 workers", "2 workers, the last 4x slower", "4 workers",
                          "4 workers, the last 4x slower"));
  EXPECT_THAT(
      condition_labels({.workers = "3", .link_rate = "none,100mbit", .link_delay = "none,5ms"}),
      ElementsAre("3 workers", "3 workers, links with a delay of 5ms",
                  "3 workers, links of 100mbit",
                  "3 workers, links of 100mbit with a delay of 5ms"));
  EXPECT_THAT(condition_labels({.workers = "2,2"}), ElementsAre("2 workers")) << "each once";
}

TEST(Conditions, HaveFoldersOfTheirOwn) {
  const Condition one = make_conditions({"2", "1.5x", "1gbit", "5ms"}).front();
  EXPECT_EQ(one.slug(), "workers-2-slow-1.5x-rate-1gbit-delay-5ms");
  EXPECT_FALSE(one.is_plain());
  EXPECT_TRUE(make_conditions({.workers = "2"}).front().is_plain());
}

TEST(Conditions, LinksAreThoseOfTcp) {
  const std::vector<Setting> plain = make_conditions({.workers = "2"}).front().settings();
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0].key, "workers");
  const std::vector<Setting> linked =
      make_conditions({.workers = "2", .link_rate = "100mbit"}).front().settings();
  ASSERT_EQ(linked.size(), 3u);
  EXPECT_EQ(linked[1].key, "strategy.fabric");
  EXPECT_EQ(linked[1].value, "tcp");
  EXPECT_EQ(linked[2].value, "\"100mbit\"");
}

TEST(Conditions, ASlowWorkerIsAFaultOfTheLast) {
  const Condition slow = make_conditions({.workers = "3", .slow_worker = "2.5x"}).front();
  const std::vector<Fault> faults = parse_faults(slow.faults(), "test");
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].action, Fault::Action::kSlow);
  EXPECT_EQ(faults[0].worker, 2);
  EXPECT_EQ(faults[0].factor, 2.5);
  EXPECT_EQ(make_conditions({.workers = "3"}).front().faults(), "");
}

TEST(Conditions, WhatIsWrongIsRefused) {
  const auto refused = [](const ConditionLists& lists) {
    return refusal([&] { make_conditions(lists); });
  };
  for (const char* workers : {"", "0", "1", "x", "2,", "2000", "-2", "2.5"})
    EXPECT_THAT(refused({.workers = workers}), HasSubstr("--workers")) << workers;
  for (const char* slow : {"4", "x", "0.5x", "1x", "4y", "nanx", "infx", "4x,"})
    EXPECT_THAT(refused({.workers = "2", .slow_worker = slow}), HasSubstr("--slow-worker")) << slow;
  for (const char* rate : {"100 mbit", "1bit", "1gbit,fast"})
    EXPECT_THAT(refused({.workers = "2", .link_rate = rate}), HasSubstr("link rate")) << rate;
  for (const char* delay : {"\"5ms", "11s", "1h"})
    EXPECT_THAT(refused({.workers = "2", .link_delay = delay}), HasSubstr("link delay")) << delay;
}

}  // namespace
}  // namespace starling
