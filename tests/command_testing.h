// What the tests of the command share: a folder of its own for each test, small jobs, and the
// command as a process.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "process.h"

namespace starling {

struct Ended {
  int code = -1;
  std::string output, error;
};

class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(test.begin(), test.end(), '/', '_');  // of parameters
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("starling_command_{}_{}", ::getpid(), test);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    EXPECT_TRUE(file.is_open()) << name << " is not there";
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  Json report(const std::string& run) const { return parse_json(read(run + "/report.json")); }
  std::string hash(const std::string& run) const { return report(run).at("weights_sha256"); }

  Process start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), STARLING_COMMAND);
    return Process(arguments, {.folder = folder_.string(), .variables = variables_});
  }
  Ended run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), STARLING_COMMAND);
    Process process(arguments, {.folder = folder_.string(), .variables = variables_});
    const int code = process.wait();
    return {code, process.output(), process.error()};
  }
  // Runs, and expects success.
  Ended done(const std::vector<std::string>& arguments) const {
    Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 0) << ended.error;
    return ended;
  }
  // Runs, and expects `error:` and `hint:`, and this exit code. Returns standard error.
  std::string refused(int code, const std::vector<std::string>& arguments) const {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, code) << ended.error;
    EXPECT_THAT(ended.error, testing::HasSubstr("error: "));
    EXPECT_THAT(ended.error, testing::HasSubstr("\nhint: "));
    EXPECT_THAT(ended.error, testing::Not(testing::HasSubstr("internal:")));
    return ended.error;
  }

  // A small CNN with everything that makes exactness hard: batch normalisation, dropout, a batch
  // that the shards don't divide, and a short last batch.
  std::filesystem::path write_cnn_job() const {
    return write("cnn.toml", R"(
name = "cnn"
shards = 3
[data]
source = "synthetic"
samples = 90
test_samples = 40
features = [6, 6, 1]
classes = 4
[[model.layers]]
type = "conv2d"
filters = 4
padding = "same"
weight_decay = 0.1
[[model.layers]]
type = "batch_norm"
[[model.layers]]
type = "relu"
[[model.layers]]
type = "max_pool2d"
[[model.layers]]
type = "dropout"
rate = 0.25
[[model.layers]]
type = "flatten"
[[model.layers]]
type = "dense"
units = 4
[training]
epochs = 3
batch = 20
[training.save_best]
value = "val_accuracy"
)");
  }

  std::filesystem::path folder_;
  std::vector<std::string> variables_;  // "NAME=value", added to the environment of commands
};

}  // namespace starling
