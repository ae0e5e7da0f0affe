#include "compare/texts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling {
namespace {

TEST(Texts, FiguresHaveThreeDigits) {
  EXPECT_EQ(digits_text(0), "0");
  EXPECT_EQ(digits_text(0.01234), "0.0123");
  EXPECT_EQ(digits_text(4.5678), "4.57");
  EXPECT_EQ(digits_text(10), "10.0");
  EXPECT_EQ(digits_text(789.1), "789");
  EXPECT_EQ(digits_text(12345), "12345");
  EXPECT_EQ(digits_text(NAN), "–");
}

TEST(Texts, UnitsFollowTheSize) {
  EXPECT_EQ(percent_text(0.8812), "88.1%");
  EXPECT_EQ(percent_text(Estimate{3, 0.8812, 0.003}), "88.12% ± 0.30");
  EXPECT_EQ(percent_text(Estimate{}), "–");
  EXPECT_EQ(seconds_text(41.234), "41.2 s");
  EXPECT_EQ(seconds_text(200), "3 min 20 s");
  EXPECT_EQ(seconds_text(7300), "2 h 1 min");
  EXPECT_EQ(seconds_text(Estimate{3, 41.2, 3.14}), "41.2 s ± 3.1");
  EXPECT_EQ(seconds_text(Estimate{1, 41.2, {}}), "41.2 s");
  EXPECT_EQ(seconds_text(Estimate{3, 200, 10}), "3 min 20 s ± 10.0 s");
  EXPECT_EQ(sent_text(999), "999 B");
  EXPECT_EQ(sent_text(1.25e6), "1.25 MB");
  EXPECT_EQ(count_text(41230), "41,230");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(about_time_text(0.2), "about 1 s");
  EXPECT_EQ(about_time_text(330), "about 6 min");
  EXPECT_EQ(about_time_text(9000), "about 2.5 h");
  EXPECT_EQ(whole_seconds_text(14.4), "14 s");
  EXPECT_EQ(whole_seconds_text(200), "3 min 20 s");
}

TEST(Texts, AreCutAtWholeCharacters) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abcd", 3), "ab…");
  EXPECT_EQ(cut_text("ä·…é", 4), "ä·…é");
  EXPECT_EQ(cut_text("ä·…éx", 4), "ä·……");
  EXPECT_EQ(cut_text("abc", 1), "…");
  EXPECT_EQ(cut_text("abc", 0), "");
  EXPECT_EQ(cut_text("", 0), "");
}

}  // namespace
}  // namespace starling
