// Runs as over another network: the same bits, later.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class WorkersLink : public WorkersTest {
 protected:
  using Words = std::vector<std::string>;

  void train(const std::string& run, const Words& more) const {
    Words words = {"train", "mlp.toml", "--no-progress", "--run-dir", run};
    words.insert(words.end(), more.begin(), more.end());
    done(words);
  }
};

TEST_F(WorkersLink, ChangesTheTimeAndNotTheBits) {
  write_mlp_job();
  train("alone", {});
  EXPECT_FALSE(report("alone").contains("link_rate"));
  for (const char* strategy : {"all_reduce", "sharded", "parameter_server"}) {
    SCOPED_TRACE(strategy);
    train(strategy, {"--workers", "3", "--strategy", strategy, "--link-rate", "20mbit",
                     "--link-delay", "5ms"});
    EXPECT_EQ(hash(strategy), hash("alone"));
    const Json paced = report(strategy);
    EXPECT_EQ(paced.at("strategy"), strategy);
    EXPECT_EQ(paced.at("link_rate"), "20mbit");
    EXPECT_EQ(paced.at("link_delay"), "5ms");
    EXPECT_EQ(paced.contains("link"), strategy == std::string("all_reduce"));  // which has a choice
    // 8 steps, and in each at least one word to another and one back.
    EXPECT_GE(paced.at("wall_s"), 8 * 2 * 0.005);
  }
}

TEST_F(WorkersLink, IsMeasuredAndReported) {
  write_mlp_job();
  train("paced", {"--workers", "3", "--link-rate", "20mbit", "--link-delay", "5ms"});
  const Json link = report("paced").at("link");
  EXPECT_GE(link.at("latency_us"), 4900);
  EXPECT_LE(link.at("gbit_per_s"), 0.04);
  EXPECT_GT(link.at("gbit_per_s"), 0);
  train("loopback", {"--workers", "3", "--set", "strategy.fabric=tcp"});
  EXPECT_GT(report("loopback").at("link").at("gbit_per_s"), 0.04);
  train("shared", {"--workers", "3"});
  EXPECT_FALSE(report("shared").contains("link"));
}

TEST_F(WorkersLink, ALostWorkerIsSurvived) {
  write_mlp_job();
  train("alone", {});
  write("faults.toml",
        "[[fault]]\naction = \"kill\"\nworker = 1\npoint = \"gradient\"\nstep = 3\n");
  train("killed", {"--workers", "3", "--link-rate", "20mbit", "--link-delay", "5ms", "--faults",
                   "faults.toml"});
  EXPECT_EQ(hash("killed"), hash("alone"));
  EXPECT_EQ(report("killed").at("recoveries").size(), 1u);
}

TEST_F(WorkersLink, BadOnesAreNamed) {
  write_mlp_job();
  const auto refusal_of = [&](const Words& more) {
    Words words = {"train", "mlp.toml", "--workers", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return refused(2, words);
  };
  EXPECT_THAT(refusal_of({"--link-rate", "fast"}),
              AllOf(HasSubstr("link rate \"fast\""), HasSubstr("100mbit")));
  EXPECT_THAT(refusal_of({"--link-delay", "5"}),
              AllOf(HasSubstr("link delay \"5\""), HasSubstr("5ms")));
  EXPECT_THAT(refusal_of({"--link-delay", "11s"}), HasSubstr("at most 10s"));
  EXPECT_THAT(refusal_of({"--link-rate", "1gbit", "--set", "strategy.fabric=shm"}),
              AllOf(HasSubstr("share memory"), HasSubstr("strategy.fabric=tcp")));
  EXPECT_THAT(refusal_of({"--set", "strategy.link_delay=5ms"}), HasSubstr("strategy.fabric=tcp"));
}

}  // namespace
}  // namespace starling
