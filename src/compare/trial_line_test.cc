#include "compare/trial_line.h"

#include <gtest/gtest.h>

#include "compare/time_left.h"

namespace starling {
namespace {

TEST(ProgressText, SaysWhatIsKnown) {
  EXPECT_EQ(
      progress_text({.done = 3, .epochs = 10, .accuracy = 0.861, .seconds = 14.3, .expected = 40}),
      "epoch 3 of 10, 86.1%, 14 s of about 40 s");
  EXPECT_EQ(progress_text({.epochs = 10, .seconds = 2, .expected = 300}), "2 s of about 5 min");
  EXPECT_EQ(progress_text({.done = 3, .accuracy = 0.5, .seconds = 14}), "epoch 3, 50.0%, 14 s");
  EXPECT_EQ(progress_text({.seconds = 50, .expected = 40}), "50 s") << "it takes longer";
}

class TrialLineTest : public testing::Test {
 protected:
  TrialLine line(bool terminal, int columns) {
    return TrialLine(
        {.out = file_, .terminal = terminal, .columns = [columns] { return columns; }});
  }
  std::string written() const {
    std::string text(static_cast<size_t>(std::ftell(file_)), ' ');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }
  void TearDown() override { std::fclose(file_); }

  std::FILE* const file_ = std::tmpfile();
};

TEST_F(TrialLineTest, IsDrawnOverOnATerminalAndCutToItsWidth) {
  TrialLine one = line(true, 12);
  one.begin("[1/4] a · b");
  ASSERT_TRUE(one.is_due());
  one.show("epoch 1");
  EXPECT_FALSE(one.is_due()) << "once a second is enough";
  one.show("epoch 2");
  one.end("88%");
  EXPECT_EQ(written(), "\r[1/4] a · …\x1b[K\r[1/4] a · …\x1b[K\r[1/4] a · b … 88%\x1b[K\n");
}

TEST_F(TrialLineTest, IsWrittenOnceElsewhere) {
  TrialLine one = line(false, 12);
  one.begin("[1/4] a · b");
  EXPECT_FALSE(one.is_due());
  one.show("epoch 1");
  one.say_once("stopping … ");
  one.say_once("stopping … ");
  one.end("stopped");
  EXPECT_EQ(written(), "[1/4] a · b … stopping … stopped\n");
}

TEST(TimeLeft, ATimeIsTheLeastBeforeTheFirstTrialIsOver) {
  TimeLeft left(60);
  EXPECT_EQ(left.expected(1), 60);
  left.add(0, 70);
  EXPECT_EQ(left.expected(1), 70);
  EXPECT_EQ(TimeLeft().expected(0), 0);
}

}  // namespace
}  // namespace starling
