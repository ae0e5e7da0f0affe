#include "observe/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/atomic_file_testing.h"
#include "base/json.h"
#include "base/read_file.h"
#include "starling/error.h"

namespace starling {
namespace {

TEST(Report, HasEveryFieldAndNullForWhatIsAbsent) {
  const Json json = parse_json(report_to_json(Report{}));
  for (const char* name :
       {"strategy", "workers",       "lanes",      "shards",          "micro_batch",
        "exact",    "precision",     "isa",        "steps",           "samples",
        "wall_s",   "samples_per_s", "bytes_sent", "optimizer_bytes", "version",
        "epochs",   "batch",         "seed",       "skipped_steps",   "roll_backs"}) {
    ASSERT_TRUE(json.contains(name)) << name;
    EXPECT_FALSE(json[name].is_null()) << name;
  }
  for (const char* name :
       {"train_loss", "test_loss", "test_accuracy", "weights_sha256", "samples_unique",
        "samples_duplicated", "samples_missing", "resumed_from", "stopped_by"}) {
    ASSERT_TRUE(json.contains(name)) << name;
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  EXPECT_NE(json["version"], "");
}

TEST(Report, IsReadBackExactly) {
  const TemporaryFolder folder;
  Report report;
  report.lanes = 2;
  report.seed = UINT64_MAX;
  report.test_loss = 0.1 + 0.2;
  report.train_loss = std::nan("");
  report.weights_sha256.emplace("ab");
  report.samples_missing = 0;
  write_report(report, folder.path() / "report.json");
  const Json json = parse_json(read_text(folder.path() / "report.json", 10000));
  EXPECT_EQ(json["lanes"], 2);
  EXPECT_EQ(json["seed"].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(json["test_loss"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_EQ(json["weights_sha256"], "ab");
  EXPECT_EQ(json["samples_missing"], 0);
  EXPECT_THROW(write_report(report, folder.path() / "none" / "report.json"), Error);
}

TEST(Report, NamesWorkersThatAreSlowerThanMost) {
  const auto names = [](std::vector<double> shard_seconds) {
    Report report;
    for (const double seconds : shard_seconds) {
      const int name = static_cast<int>(report.times.size()) + 10;
      report.times.push_back({.worker = name, .shards = 4, .shard = seconds});
    }
    return to_text(parse_json(report_to_json(report))["stragglers"]);
  };
  EXPECT_EQ(names({}), "[]");
  EXPECT_EQ(names({9}), "[]");
  EXPECT_EQ(names({1, 1.2}), "[]");
  EXPECT_EQ(names({1, 1.3}), "[11]");
  EXPECT_EQ(names({4, 1, 1.1, 1}), "[10]");
  EXPECT_EQ(names({0, 1, 1.1, 0}), "[]") << "of some nothing is known";
}

TEST(Report, SaysWhatEachWorkerHadAndTook) {
  Report report;
  report.balance = "speed";
  report.rebalances = 2;
  report.times.push_back({.worker = 3, .shards = 5, .shard = 0.25});
  const Json json = parse_json(report_to_json(report));
  EXPECT_EQ(json["balance"], "speed");
  EXPECT_EQ(json["rebalances"], 2);
  EXPECT_EQ(json["worker_times"][0]["worker"], 3);
  EXPECT_EQ(json["worker_times"][0]["shards"], 5);
  EXPECT_EQ(json["worker_times"][0]["shard_s"], 0.25);
}

}  // namespace
}  // namespace starling
