#include "job/tune.h"

#include <gtest/gtest.h>

#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kCommentedLayers =
    "[[model.layers]] # the last one\ntype = \"dense\"\nunits = 10\n";

TEST(Tune, ReplacesValuesAndKeepsComments) {
  const std::string before =
      "# My job\nshards = 4 # measured once\nname = \"ü\"\nmicro_batch=16\n\n# The model\n" +
      std::string(kCommentedLayers);
  const std::string after =
      "# My job\nshards = 8 # measured once\nname = \"ü\"\nmicro_batch=2\n\n# The model\n" +
      std::string(kCommentedLayers);
  EXPECT_EQ(with_tuning(before, "job.toml", 8, 2), after);
}

TEST(Tune, AddsValuesAfterTheLastTopLevelField) {
  const std::string before =
      "# My job\nname = \"a\" # short\n\n# Data\n[data]\nsource = \"mnist\"\n" +
      std::string(kCommentedLayers);
  const std::string after =
      "# My job\nname = \"a\" # short\nshards = 1\nmicro_batch = 32\n\n# Data\n[data]\nsource = "
      "\"mnist\"\n" +
      std::string(kCommentedLayers);
  EXPECT_EQ(with_tuning(before, "job.toml", 1, 32), after);
}

TEST(Tune, AddsValuesToAFileWithoutTopLevelFields) {
  const Job job = parse_job(
      with_tuning(std::string("# Only layers\n") + kCommentedLayers, "job.toml", 2, 4), "job.toml");
  EXPECT_EQ(job.shards, 2u);
  EXPECT_EQ(job.micro_batch, 4u);
}

TEST(Tune, IsNotFooledByTextThatLooksLikeAField) {
  const std::string before =
      "name = \"\"\"\nshards = 3\n\"\"\"\n[training]\nbatch = 8\n" + std::string(kCommentedLayers);
  const Job job = parse_job(with_tuning(before, "job.toml", 2, 4), "job.toml");
  EXPECT_EQ(job.name, "shards = 3\n");
  EXPECT_EQ(job.shards, 2u);
}

TEST(Tune, RefusesWhatIsNotAJob) { EXPECT_THROW(with_tuning("x = 1", "job.toml", 1, 1), Error); }

// How workers share the work, and what is done about bad numbers, is of no account to it.
TEST(Tune, TakesEveryJob) {
  for (const char* more : {"non_finite = \"roll_back\"\n", "[strategy]\nname = \"local_sgd\"\n",
                           "workers = 4\n[strategy]\nname = \"parameter_server\"\n"
                           "consistency = \"async\"\n"}) {
    const Job job = parse_job(std::string(more) + "[data]\nsource = \"synthetic\"\nsamples = 64\n" +
                                  std::string(kCommentedLayers),
                              "job.toml");
    EXPECT_GE(tune_job(job, {.seconds_each = 0.001}).size(), 1u) << more;
  }
}

TEST(Tune, MeasuresEachCandidateOnceAndPutsTheQuickestFirst) {
  const Job job = parse_job(
      "lanes = 1\n[data]\nsource = \"synthetic\"\nsamples = 256\n" + std::string(kCommentedLayers),
      "job.toml");
  int measured = 0;
  const auto candidates = tune_job(
      job, {.seconds_each = 0.001, .on_measured = [&](const TuneCandidate&) { ++measured; }});
  ASSERT_GE(candidates.size(), 5u);
  EXPECT_EQ(candidates.size(), static_cast<size_t>(measured));
  for (size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_GT(candidates[i].samples_per_s, 0);
    EXPECT_LE(candidates[i].micro_batch * candidates[i].shards, 64u + candidates[i].shards);
    if (i > 0) {
      EXPECT_LE(candidates[i].samples_per_s, candidates[i - 1].samples_per_s);
    }
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(candidates[i].shards == candidates[j].shards &&
                   candidates[i].micro_batch == candidates[j].micro_batch);
    }
  }
}

}  // namespace
}  // namespace starling
