#include "observe/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A stream into memory, a clock moved by hand and a window of any width.
class ProgressTest : public testing::Test {
 protected:
  ProgressTest() : out_(open_memstream(&text_, &size_)) {}
  ~ProgressTest() override {
    std::fclose(out_);
    std::free(text_);
  }

  ProgressOptions options(bool terminal) {
    return {.terminal = terminal,
            .clock_s = [this] { return now_s_; },
            .columns = [this] { return columns_; }};
  }

  // What was written since the last call.
  std::string written() {
    std::fflush(out_);
    const std::string all(text_, size_);
    const std::string news = all.substr(seen_);
    seen_ = all.size();
    return news;
  }

  static EpochRecord record() {
    return {2,
            1876,
            1.46,
            {{"train_loss", 0.3121},
             {"val_loss", 0.33},
             {"val_accuracy", 0.891},
             {"learning_rate", 1e-3},
             {"samples_per_s", 41230}}};
  }

  char* text_ = nullptr;
  size_t size_ = 0, seen_ = 0;
  std::FILE* out_;
  double now_s_ = 100;
  int columns_ = 100;
};

TEST_F(ProgressTest, DrawsTheLineOfATerminal) {
  ProgressBar progress(out_, options(true));
  progress.begin_epoch({.epoch = 2, .epochs = 3, .steps = 938});
  now_s_ += 1;
  progress.update({.done = 469, .samples = 41230, .loss = 0.31214, .accuracy = 0.891});
  EXPECT_EQ(written(),
            "\repoch 2/3 ━━━━━━━━━━━━━╸               469/938  41,230 samples/s  loss 0.3121  "
            "acc 89.1%  eta 00:03\x1b[K");
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  ProgressBar progress(out_, options(true));
  progress.begin_epoch({.steps = 1000});
  int drawn = 0;
  for (uint64_t step = 1; step <= 1000; ++step) {
    now_s_ += 0.001;
    progress.update({.done = step, .samples = step, .loss = 1});
    if (!written().empty()) ++drawn;
  }
  EXPECT_GE(drawn, 9);
  EXPECT_LE(drawn, 11);
}

// A worker that writes to a paused terminal waits for as long as it is paused.
TEST_F(ProgressTest, WritesThroughWhoHasToKnowOfIt) {
  int writes = 0;
  ProgressOptions told = options(true);
  told.write_by = [&](FunctionRef<void()> write) {
    EXPECT_EQ(written(), "") << "something was written before";
    write();
    EXPECT_NE(written(), "");
    ++writes;
  };
  {
    ProgressBar progress(out_, told);
    progress.begin_epoch({.steps = 1000});
    EXPECT_EQ(writes, 0);
    progress.update({.done = 1, .samples = 1, .loss = 1});
    EXPECT_EQ(writes, 1);
    for (uint64_t step = 2; step <= 100; ++step) {
      now_s_ += 0.0005;
      progress.update({.done = step, .samples = step, .loss = 1});
    }
    EXPECT_EQ(writes, 1) << "a bar that is not drawn asks nobody";
    progress.print_line("note");
    EXPECT_EQ(writes, 2);
    progress.end_epoch(record());
    EXPECT_EQ(writes, 3);
    now_s_ += 1;
    progress.update({.done = 101, .samples = 101, .loss = 1});
    EXPECT_EQ(writes, 4);
  }
  EXPECT_EQ(writes, 5) << "the line that was open";
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, ATerminalThatIsPausedIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  std::FILE* const out = fdopen(ends[1], "w");
  char bytes[4096] = {};
  while (write(ends[1], bytes, sizeof bytes) > 0) continue;  // nobody reads
  fcntl(ends[1], F_SETFL, 0);                                // from now on it is waited for
  {
    ProgressBar progress(out, options(true));
    progress.begin_epoch({.steps = 10});
    now_s_ += 1;
    progress.update({.done = 1, .samples = 1, .loss = 1});
    progress.print_line("a note");
    progress.end_epoch(record());
    while (read(ends[0], bytes, sizeof bytes) > 0) continue;
    now_s_ += 1;
    progress.update({.done = 2, .samples = 1, .loss = 1});
    const ssize_t count = read(ends[0], bytes, sizeof bytes);
    ASSERT_GT(count, 0);
    EXPECT_THAT(std::string(bytes, static_cast<size_t>(count)),
                AllOf(StartsWith("a note\nepoch 2/1"), HasSubstr("2/10"), Not(HasSubstr("1/10"))));
  }
  std::fclose(out);
  close(ends[0]);
}

TEST_F(ProgressTest, NeverExceedsTheWidthOfTheWindow) {
  ProgressOptions plain = options(true);
  plain.unicode = false;
  ProgressBar progress(out_, plain);
  for (columns_ = 1; columns_ < 140; ++columns_) {
    progress.begin_epoch({.epoch = 2, .epochs = 3, .steps = 938});
    now_s_ += 1;
    progress.update({.done = 512, .samples = 41230, .loss = 0.3121, .accuracy = 0.891});
    std::string line = written();
    line = line.substr(1, line.find('\x1b') - 1);
    EXPECT_LT(static_cast<int>(line.size()), columns_ == 1 ? 2 : columns_) << line;
    EXPECT_TRUE(columns_ < 45 || line.find("loss 0.3121") != std::string::npos) << line;
    EXPECT_TRUE(columns_ < 60 || line.find("====") != std::string::npos) << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST_F(ProgressTest, LeavesOneLinePerEpochOnATerminal) {
  ProgressBar progress(out_, options(true));
  progress.begin_epoch({.epoch = 2, .epochs = 3, .steps = 938});
  progress.update({.done = 938, .samples = 60000, .loss = 0.3});
  written();
  progress.end_epoch(record());
  EXPECT_EQ(written(),
            "\r\x1b[Kepoch 2/3 ━━━━━━━━━━━━  loss 0.3121  val loss 0.3300  val acc 89.1%  "
            "41,230 samples/s  1.5 s\n");
}

TEST_F(ProgressTest, WritesOnlyPlainEpochLinesToAFile) {
  {
    ProgressBar progress(out_, options(false));
    progress.begin_epoch({.epoch = 2, .epochs = 3, .steps = 938});
    now_s_ += 1;
    progress.update({.done = 512, .samples = 100, .loss = 0.3121});
    EXPECT_EQ(written(), "");
    progress.end_epoch(record());
  }
  EXPECT_EQ(written(),
            "epoch 2/3  loss 0.3121  val loss 0.3300  val acc 89.1%  41,230 samples/s  1.5 s\n");
}

TEST_F(ProgressTest, HiddenItShowsOnlyOtherLines) {
  ProgressOptions hidden = options(true);
  hidden.enabled = false;
  {
    ProgressBar progress(out_, hidden);
    progress.begin_epoch({.steps = 10});
    progress.update({.done = 5});
    progress.print_line("warning: a full disk");
    progress.end_epoch(record());
  }
  EXPECT_EQ(written(), "warning: a full disk\n");
}

TEST_F(ProgressTest, OtherLinesDoNotTearTheBar) {
  ProgressBar progress(out_, options(true));
  progress.begin_epoch({.steps = 10});
  progress.update({.done = 5, .loss = 1});
  const std::string bar = written();
  progress.print_line("warning: x");
  EXPECT_EQ(written(), "\r\x1b[Kwarning: x\n" + bar);
}

TEST_F(ProgressTest, EndsAnOpenLineWithANewline) {
  {
    ProgressBar progress(out_, options(true));
    progress.begin_epoch({.steps = 10});
    progress.update({.done = 5, .loss = 1});
    EXPECT_THAT(written(), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(written(), "\n");
}

TEST_F(ProgressTest, CountsARunResumedInTheMiddleFromThere) {
  ProgressBar progress(out_, options(true));
  progress.begin_epoch({.epoch = 1, .epochs = 1, .steps = 1000, .done = 900});
  now_s_ += 10;
  progress.update({.done = 950, .samples = 500, .loss = 12345});
  const std::string line = written();
  EXPECT_THAT(line, HasSubstr("  50 samples/s"));
  EXPECT_THAT(line, HasSubstr("loss 1.234e+04"));
  EXPECT_THAT(line, HasSubstr("eta 00:10"));
}

TEST_F(ProgressTest, ColoursAreOnlyAddedWhenAskedFor) {
  ProgressOptions coloured = options(true);
  coloured.color = true;
  ProgressBar progress(out_, coloured);
  progress.begin_epoch({.steps = 10});
  progress.update({.done = 5, .loss = 1});
  EXPECT_THAT(written(), HasSubstr("\x1b[36m━━━"));
}

}  // namespace
}  // namespace starling
