// Nobody reads what a run says any more, or it can't be written: that ends no run and loses
// nothing.
#include "command_testing.h"

namespace starling {
namespace {

class Output : public CommandTest, public testing::WithParamInterface<const char*> {
 protected:
  std::vector<std::string> train(const char* epochs) const {
    write_cnn_job();
    return {"train",     "cnn.toml",
            "--run-dir", "run",
            "--workers", GetParam(),
            "--set",     std::string("training.epochs=") + epochs,
            "--set",     "checkpoint.every_seconds=0",
            "--set",     "checkpoint.every_steps=1000000"};
  }
};

// `starling train … | head -n 2`.
TEST_P(Output, ARunGoesOnWithoutItsReader) {
  Process process = start(train("40"));
  ASSERT_TRUE(process.wait_for_line("epoch 2/")) << process.error();
  process.read_no_more();
  EXPECT_EQ(process.wait(), 0);
  EXPECT_EQ(report("run").at("epochs"), 40);
}

// `starling train … | tee log`, and Ctrl-C, which ends tee at once.
TEST_P(Output, AStopIsSavedWithoutItsReader) {
  Process process = start(train("100000"));
  ASSERT_TRUE(process.wait_for_line("epoch 2/")) << process.error();
  process.read_no_more();
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 75);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "run/checkpoints"));
}

TEST_P(Output, AStopIsSavedWhereNothingCanBeWritten) {
  std::string line = STARLING_COMMAND;
  for (const std::string& word : train("100000")) line += " " + word;
  Process process({"/bin/sh", "-c",
                   line + " >/dev/full 2>/dev/full & until [ -e run/history.csv ]; do sleep 0.01; "
                          "done; kill -TERM $!; wait $!"},
                  {.folder = folder_.string()});
  EXPECT_EQ(process.wait(), 75);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "run/checkpoints"));
}

INSTANTIATE_TEST_SUITE_P(Workers, Output, testing::Values("1", "2"),
                         [](const auto& workers) { return std::string("Of") + workers.param; });

TEST_F(CommandTest, WhatIsToBeCalledNextCanBePasted) {
  std::filesystem::create_directories(folder_ / "it's here");
  std::filesystem::rename(write_cnn_job(), folder_ / "it's here/my job.toml");
  Process process = start({"train", "it's here/my job.toml", "--run-dir", "its run", "--set",
                           "name=a b", "--set", "training.epochs=100000", "--seed", "5"});
  ASSERT_TRUE(process.wait_for_line("epoch 1/")) << process.error();
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << process.error();
  const size_t at = process.error().rfind("  starling train ");
  ASSERT_NE(at, std::string::npos) << process.error();
  const std::string line = process.error().substr(at + 2);
  Process again({"/bin/sh", "-c", "PATH=${0%/*}:$PATH; exec " + line, STARLING_COMMAND},
                {.folder = folder_.string()});
  ASSERT_TRUE(again.wait_for_line("epoch ")) << again.error();
  again.signal(SIGTERM);
  EXPECT_EQ(again.wait(), 75) << again.error();
  EXPECT_TRUE(report("its run").at("resumed_from").is_string());
}

}  // namespace
}  // namespace starling
