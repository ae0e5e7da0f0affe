// `starling bench all-reduce`: that it runs and says what it measured. How fast it is, is not
// tested.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_F(WorkersTest, BenchAllReduceHasARowForEachSize) {
  for (const std::string fabric : {"shm", "tcp"}) {
    const Ended ended =
        done({"bench", "all-reduce", "--workers", "3", "--fabric", fabric, "--sizes",
              "8B,12KiB,1MiB", "--repeats", "2", "--json", "figures.json"});
    const std::vector<std::string> lines = lines_of(ended.output);
    ASSERT_EQ(lines.size(), 5u) << ended.output;
    EXPECT_THAT(lines[0], StartsWith("all-reduce, 3 workers, " + fabric));
    EXPECT_THAT(lines[1], AllOf(HasSubstr("size"), HasSubstr("algorithm"), HasSubstr("time"),
                                HasSubstr("GB/s"), HasSubstr("bare sum")));
    EXPECT_THAT(lines[2], AllOf(HasSubstr("8 B"), HasSubstr("all_reduce_")));
    EXPECT_THAT(lines[3], HasSubstr("12 KiB"));
    EXPECT_THAT(lines[4], HasSubstr("1 MiB"));

    const auto figures = parse_json(read("figures.json"));
    EXPECT_EQ(figures.at("workers"), 3);
    EXPECT_EQ(figures.at("fabric"), fabric);
    ASSERT_EQ(figures.at("rows").size(), 3u);
    EXPECT_EQ(figures.at("rows")[1].at("bytes"), 12 << 10);
    for (const auto& row : figures.at("rows")) {
      EXPECT_GT(row.at("seconds"), 0);
      EXPECT_GT(row.at("gb_per_s"), 0);
      // Workers that share no memory have no such ceiling.
      EXPECT_EQ(row.at("bare_seconds").is_null(), fabric == "tcp");
    }
  }
}

TEST_F(WorkersTest, BenchAllReduceRefusesWhatItCannotMeasure) {
  for (const char* sizes : {"", "1KB", "0B", "6B", "-8B", "8", "KiB", "1MiB,", "5GiB",
                            "99999999999999999999B", "18446744073709551615GiB"}) {
    EXPECT_THAT(refused(2, {"bench", "all-reduce", "--sizes", sizes}), HasSubstr("--sizes"))
        << sizes;
  }
  EXPECT_THAT(refused(2, {"bench", "all-reduce", "--workers", "1"}), HasSubstr("--workers"));
  EXPECT_THAT(refused(2, {"bench", "all-reduce", "--repeats", "0"}), HasSubstr("--repeats"));
  EXPECT_THAT(refused(2, {"bench", "all-reduce", "--fabric", "udp"}), HasSubstr("--fabric"));
  EXPECT_THAT(refused(2, {"bench", "all-reduce", "--json", "nowhere/x.json"}),
              HasSubstr("nowhere"));
  EXPECT_THAT(refused(2, {"bench"}), HasSubstr("one of: all-reduce"));
  EXPECT_THAT(refused(2, {"bench", "all-reduec"}), HasSubstr("did you mean all-reduce?"));
}

TEST_F(WorkersTest, BenchAllReduceLeavesNothingBehindWhenItIsStopped) {
  Process process = start({"bench", "all-reduce", "--sizes", "4MiB", "--repeats", "100000"});
  std::map<int, Watched> workers;
  const auto end = Process::Clock::now() + kSoon;
  while (workers.size() < 2 && Process::Clock::now() < end) {
    workers = workers_of(process);
    std::this_thread::yield();
  }
  ASSERT_EQ(workers.size(), 2u);
  process.signal(SIGTERM);
  EXPECT_NE(process.wait(), 0);
  expect_nothing_left(workers);
}

}  // namespace
}  // namespace starling
