#include "compare/strategies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.h"
#include "job/job_fields.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> strategy_labels(const std::string& text) {
  std::vector<std::string> all;
  for (const ComparedStrategy& one : parse_strategies(text)) all.push_back(one.label());
  return all;
}

TEST(Strategies, NamesWithSettingsAndGrids) {
  EXPECT_THAT(strategy_labels("all_reduce"), ElementsAre("all_reduce"));
  EXPECT_THAT(strategy_labels("single,parameter_server:consistency=async"),
              ElementsAre("single", "parameter_server async"));
  EXPECT_THAT(strategy_labels("parameter_server:async/ssp"),
              ElementsAre("parameter_server async", "parameter_server ssp"));
  EXPECT_THAT(strategy_labels("local_sgd:period=16/64:nesterov/average"),
              ElementsAre("local_sgd period=16 nesterov", "local_sgd period=16 average",
                          "local_sgd period=64 nesterov", "local_sgd period=64 average"));
  EXPECT_THAT(strategy_labels("all_reduce,all_reduce,all_reduce:speed"),
              ElementsAre("all_reduce", "all_reduce speed"))
      << "each once";
}

TEST(Strategies, SettingsAreFieldsOfTheJob) {
  const ComparedStrategy one = parse_strategies("local_sgd:period=64:nesterov").front();
  EXPECT_EQ(one.name, "local_sgd");
  ASSERT_EQ(one.settings.size(), 2u);
  EXPECT_EQ(one.settings[0].key, "period");
  EXPECT_EQ(one.settings[0].value, "64");
  EXPECT_EQ(one.settings[1].key, "outer");
  EXPECT_EQ(one.settings[1].value, "nesterov");
  EXPECT_EQ(one.slug(), "local_sgd-period-64-nesterov");
}

// Who adds a strategy says here how it is tried first.
TEST(Strategies, AllHasEveryStrategyThereIs) {
  std::set<std::string> listed, known;
  for (const ComparedStrategy& one : all_strategies()) listed.insert(one.name);
  for (const Section& section : job_sections()) {
    for (const JobField& field : section.fields) {
      if (section.path != "strategy" || field.key != "name") continue;
      for (const std::string_view name : field.choices) known.emplace(name);
    }
  }
  known.erase("auto");
  EXPECT_EQ(listed, known);
  EXPECT_EQ(parse_strategies("all").size(), all_strategies().size());
  EXPECT_EQ(parse_strategies("all,local_sgd:period=8").size(), all_strategies().size() + 1);
  EXPECT_EQ(all_strategies().front().name, "single");
}

TEST(Strategies, WhatIsMistypedIsRefusedWithTheNearest) {
  const auto refused = [](const char* text) { return refusal([&] { parse_strategies(text); }); };
  EXPECT_THAT(refused("al_reduce"), AllOf(HasSubstr("al_reduce"), HasSubstr("mean all_reduce?")));
  EXPECT_THAT(refused("local_sgd:perod=4"), HasSubstr("did you mean period?"));
  EXPECT_THAT(refused("local_sgd:nestrov"), HasSubstr("did you mean nesterov?"));
  EXPECT_THAT(refused("all_reduce,,single"), HasSubstr("for instance"));
  EXPECT_THAT(refused(""), HasSubstr("for instance"));
  EXPECT_THAT(refused("local_sgd:period="), HasSubstr("lacks a value"));
  EXPECT_THAT(refused("local_sgd:period=4//8"), HasSubstr("lacks a value"));
  EXPECT_THAT(refused("local_sgd:name=single"), HasSubstr("no setting"));
  EXPECT_THAT(refused("single:period=4"), HasSubstr("has no settings"));
  EXPECT_THAT(refused("local_sgd:period=16:nesterov:period=64"),
              AllOf(HasSubstr("\"period\" twice"), HasSubstr("given as period=16/64")));
  EXPECT_THAT(refused("parameter_server:async:consistency=ssp"),
              HasSubstr("given as consistency=async/ssp"));
  EXPECT_THAT(refused("auto"), HasSubstr("no strategy"));
}

}  // namespace
}  // namespace starling
