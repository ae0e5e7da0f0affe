#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Arguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "starling");
  return parse_arguments(static_cast<int>(words.size()), words.data());
}

std::string usage_error(const std::vector<const char*>& words) {
  return refusal([&] { parse(words); });
}

TEST(Arguments, OfTrain) {
  const Arguments arguments =
      parse({"train", "job.toml", "--set", "a.b=1", "--set", "c=x=y", "--lanes", "3", "--seed", "7",
             "--run-dir", "out", "--resume", "--no-progress"});
  EXPECT_EQ(arguments.command, Command::kTrain);
  EXPECT_EQ(arguments.target, "job.toml");
  ASSERT_EQ(arguments.settings.size(), 4u);
  EXPECT_EQ(arguments.settings[1].key, "c");
  EXPECT_EQ(arguments.settings[1].value, "x=y");
  EXPECT_EQ(arguments.settings[2].key, "lanes");
  EXPECT_EQ(arguments.settings[3].value, "7");
  EXPECT_EQ(arguments.run_dir, "out");
  EXPECT_TRUE(arguments.resume);
  EXPECT_TRUE(arguments.no_progress);
}

TEST(Arguments, SetTakesListsAndLeavesTheJobAlone) {
  const Arguments arguments = parse({"train", "--set", "model.input=[28,28,1]", "job.toml"});
  EXPECT_EQ(arguments.target, "job.toml");
  EXPECT_EQ(arguments.settings[0].value, "[28,28,1]");
}

TEST(Arguments, OfTheOtherCommands) {
  EXPECT_EQ(parse({"eval", "runs/a", "--weights", "w"}).weights, "w");
  const Arguments predict =
      parse({"predict", "runs/a", "--samples", "3:9", "--top", "2", "--output", "p.csv"});
  EXPECT_EQ(predict.samples->first, 3u);
  EXPECT_EQ(predict.samples->last, 9u);
  EXPECT_EQ(predict.top, 2u);
  const Arguments replay = parse({"replay", "runs/a", "--timing-seed", "5", "--lanes", "2"});
  EXPECT_EQ(replay.command, Command::kReplay);
  EXPECT_EQ(replay.target, "runs/a");
  EXPECT_EQ(replay.timing_seed, 5u);
  EXPECT_EQ(replay.settings.at(0).key, "lanes");
  EXPECT_TRUE(parse({"describe", "j", "--kernels"}).kernels);
  EXPECT_TRUE(parse({"tune", "j", "--dry-run"}).dry_run);
  EXPECT_EQ(parse({"data", "get", "mnist"}).command, Command::kDataGet);
  EXPECT_EQ(parse({"data", "info", "mnist"}).command, Command::kDataInfo);
}

TEST(Arguments, OfCompare) {
  const Arguments plain = parse({"compare", "job.toml"});
  EXPECT_EQ(plain.command, Command::kCompare);
  EXPECT_EQ(plain.compare.strategies, "all");
  EXPECT_EQ(plain.compare.seeds, 3u);
  EXPECT_FALSE(plain.compare.epochs || plain.compare.samples || plain.compare.seconds);
  const Arguments all =
      parse({"compare",     "job.toml", "--strategies",  "all_reduce,local_sgd:period=4/8",
             "--workers",   "2,4",      "--slow-worker", "none,4x",
             "--link-rate", "100mbit",  "--link-delay",  "5ms",
             "--seeds",     "5",        "--time",        "1.5min",
             "--epochs",    "7",        "--goal",        "0.88",
             "--out",       "there",    "--overwrite"});
  EXPECT_EQ(all.compare.strategies, "all_reduce,local_sgd:period=4/8");
  EXPECT_EQ(all.compare.conditions.workers, "2,4");
  EXPECT_EQ(all.compare.conditions.slow_worker, "none,4x");
  EXPECT_EQ(all.compare.conditions.link_rate, "100mbit");
  EXPECT_EQ(all.compare.conditions.link_delay, "5ms");
  EXPECT_EQ(all.compare.seeds, 5u);
  EXPECT_EQ(all.compare.seconds, 90);
  EXPECT_EQ(all.compare.epochs, 7u);
  EXPECT_EQ(all.compare.goal, 0.88);
  EXPECT_EQ(all.out, "there");
  EXPECT_TRUE(all.overwrite);
  for (const char* time : {"5", "s", "-1s", "0s", "1day", "1e30h", "nans"})
    EXPECT_THAT(usage_error({"compare", "job.toml", "--time", time}), HasSubstr("90s")) << time;
  EXPECT_THAT(usage_error({"compare", "job.toml", "--strategy", "x"}),
              HasSubstr("did you mean --strategies?"));
}

TEST(Arguments, EveryCommandShowsAnExample) {
  for (const char* command :
       {"train", "replay", "eval", "predict", "describe", "tune", "compare", "data"}) {
    const Arguments help = parse({command, "--help"});
    EXPECT_EQ(help.command, Command::kShowText);
    EXPECT_THAT(help.text,
                AllOf(HasSubstr("Example:"), HasSubstr(std::string("starling ") + command)));
  }
  EXPECT_THAT(parse({"predict", "--help"}).text,
              AllOf(HasSubstr("--samples FIRST:LAST "), HasSubstr("--top K "),
                    testing::Not(testing::ContainsRegex("Excludes|REQUIRED|TEXT|INT|\n\n\n"))));
  EXPECT_THAT(parse({"--help"}).text,
              AllOf(HasSubstr("Exit codes"), HasSubstr("75"), HasSubstr("First steps")));
  EXPECT_THAT(parse({"--version"}).text, testing::StartsWith("starling "));
}

TEST(Arguments, SizesOfABenchmarkHaveUnits) {
  const Arguments given =
      parse({"bench", "all-reduce", "-n", "4", "--sizes", "8B,3KiB,2MiB,1GiB", "--repeats", "5"});
  EXPECT_EQ(given.command, Command::kBenchAllReduce);
  EXPECT_EQ(given.workers, 4);
  EXPECT_EQ(given.repeats, 5);
  EXPECT_THAT(given.sizes, testing::ElementsAre(8, 3 << 10, 2 << 20, 1 << 30));
  const Arguments plain = parse({"bench", "all-reduce"});
  EXPECT_EQ(plain.workers, 2);
  EXPECT_EQ(plain.fabric, "shm");
  EXPECT_EQ(plain.sizes.front(), 8u);
  EXPECT_EQ(plain.sizes.back(), 128u << 20);
}

TEST(Arguments, ALinkWantsTcpUnlessAFabricWasChosen) {
  const auto fabric_of = [](const Arguments& arguments) {
    std::string fabric = "as in the job";
    for (const Setting& setting : arguments.settings) {
      if (setting.key == "strategy.fabric") fabric = setting.value;
    }
    return fabric;
  };
  const Arguments paced = parse({"train", "j", "--link-rate", "100mbit", "--link-delay", "5ms"});
  EXPECT_EQ(paced.settings.at(0).key, "strategy.link_rate");
  EXPECT_EQ(paced.settings.at(0).value, "100mbit");
  EXPECT_EQ(paced.settings.at(1).key, "strategy.link_delay");
  EXPECT_EQ(fabric_of(paced), "tcp");
  EXPECT_EQ(fabric_of(parse({"train", "j"})), "as in the job");
  EXPECT_EQ(fabric_of(parse({"train", "j", "--fabric", "tcp"})), "tcp");
  EXPECT_EQ(fabric_of(parse({"train", "j", "--fabric", "shm", "--link-rate", "1gbit"})), "shm");
  EXPECT_EQ(fabric_of(parse({"train", "j", "--link-delay", "5ms", "--set", "strategy.fabric=shm"})),
            "shm");
  EXPECT_EQ(parse({"bench", "all-reduce", "--link-rate", "1gbit"}).fabric, "tcp");
  EXPECT_EQ(parse({"launch", "-n", "2", "--link-delay", "1ms", "--", "p"}).link_delay, "1ms");
  EXPECT_THAT(usage_error({"bench", "all-reduce", "--fabric", "shm", "--link-rate", "1gbit"}),
              HasSubstr("--fabric tcp"));
}

TEST(Arguments, NearestNameForAMistypedOne) {
  EXPECT_THAT(usage_error({"trian", "job.toml"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(usage_error({"train", "job.toml", "--lanse", "3"}),
              HasSubstr("did you mean --lanes?"));
  EXPECT_THAT(usage_error({"train", "--reusme", "job.toml"}), HasSubstr("did you mean --resume?"));
  EXPECT_THAT(usage_error({"train", "--run-dri=out", "job.toml"}),
              HasSubstr("did you mean --run-dir?"));
  EXPECT_THAT(usage_error({"data", "gte", "mnist"}), HasSubstr("did you mean get?"));
}

TEST(Arguments, WhatIsMissingOrTooMuchIsNamed) {
  EXPECT_THAT(usage_error({}), HasSubstr("needs a command"));
  EXPECT_THAT(usage_error({"data"}), HasSubstr("one of: get, info"));
  EXPECT_THAT(usage_error({"train"}),
              AllOf(HasSubstr("JOB is required"), HasSubstr("starling train --help")));
  EXPECT_THAT(usage_error({"train", "a", "b"}), HasSubstr("no argument b"));
  for (const char* number : {"two", "-1", "2.5", "", "99999999999999999999"}) {
    EXPECT_THAT(usage_error({"train", "a", "--lanes", number}), HasSubstr("--lanes: \"")) << number;
    EXPECT_THAT(usage_error({"train", "a", "--seed", number}), HasSubstr("no whole number"))
        << number;
  }
  EXPECT_THAT(usage_error({"train", "a", "--lanes"}), HasSubstr("--lanes"));
  EXPECT_THAT(usage_error({"train", "a", "--set", "seed"}), HasSubstr("is not key=value"));
  EXPECT_THAT(usage_error({"train", "a", "--resume", "--overwrite"}), HasSubstr("excludes"));
  EXPECT_THAT(usage_error({"launch", "--", "./p", "--its"}), HasSubstr("--workers is required"));
  EXPECT_THAT(usage_error({"launch", "-n", "2", "--"}), HasSubstr("PROGRAM is required"));
  EXPECT_THAT(usage_error({"launch", "-n", "2", "./p", "--its"}),
              AllOf(HasSubstr("no flag --its"), HasSubstr("behind --")));
  EXPECT_THAT(usage_error({"launch", "-n", "2", "--lanse", "1", "--", "./p", "--its"}),
              HasSubstr("did you mean --lanes?"));
  for (const char* range :
       {"3", "9:3", "a:b", "3:", ":3", "1:2:3", "-1:3", "99999999999999999999:3"}) {
    EXPECT_THAT(usage_error({"predict", "a", "--samples", range}), HasSubstr("--samples")) << range;
  }
}

}  // namespace
}  // namespace starling
