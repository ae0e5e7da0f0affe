#include "cluster/worker_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "cluster/worker_starter.h"

namespace starling {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

class WorkerOutputTest : public testing::Test {
 protected:
  void write(std::string_view text) const {
    ASSERT_EQ(::write(pipe_.write_end.fd(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  void close_it() { pipe_.write_end = Socket(); }

  void pass_on() {
    output_.pass_on([&](std::string_view line) { lines_.emplace_back(line); });
  }
  void finish() {
    output_.finish([&](std::string_view line) { lines_.emplace_back(line); });
  }

  Pipe pipe_{"a test"};
  WorkerOutput output_{std::move(pipe_.read_end)};
  std::vector<std::string> lines_;
};

TEST_F(WorkerOutputTest, LinesAreWholeHoweverTheyCome) {
  write("a\nb");
  pass_on();
  EXPECT_THAT(lines_, ElementsAre("a"));
  write("c\n\nd");
  pass_on();
  EXPECT_THAT(lines_, ElementsAre("a", "bc", ""));
  pass_on();
  finish();
  EXPECT_THAT(lines_, ElementsAre("a", "bc", "", "d"));
}

TEST_F(WorkerOutputTest, ItsEndIsSeen) {
  write("no end");
  close_it();
  pass_on();
  EXPECT_GE(output_.fd(), 0) << "it may have more";
  pass_on();
  EXPECT_EQ(output_.fd(), -1);
  EXPECT_THAT(lines_, ElementsAre("no end"));
  finish();
  EXPECT_THAT(lines_, SizeIs(1));
}

// Else who writes as fast as it is read would never let go of the one who reads.
TEST_F(WorkerOutputTest, WhatComesMeanwhileIsForTheNextCall) {
  write("first\n");
  const auto print = [&](std::string_view line) {
    lines_.emplace_back(line);
    if (lines_.size() < 1000) write("next\n");
  };
  output_.pass_on(print);
  EXPECT_THAT(lines_, ElementsAre("first"));
  output_.finish(print);
  EXPECT_THAT(lines_, ElementsAre("first", "next"));
}

TEST_F(WorkerOutputTest, ALineThatDoesNotEndComesInPieces) {
  constexpr int kParts = 10;
  std::string all;
  for (int i = 0; i < kParts; ++i) {
    const std::string part(WorkerOutput::kLineMax / 2 + 1, static_cast<char>('a' + i));
    write(part);
    pass_on();
    all += part;
  }
  EXPECT_THAT(lines_, SizeIs(kParts / 2));
  EXPECT_THAT(lines_, Each(SizeIs(WorkerOutput::kLineMax)));
  finish();
  EXPECT_EQ(std::accumulate(lines_.begin(), lines_.end(), std::string()), all);
}

}  // namespace
}  // namespace starling
