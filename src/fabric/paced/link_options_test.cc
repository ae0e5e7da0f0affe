#include "fabric/paced/link_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

TEST(LinkOptions, AreReadFromTexts) {
  const LinkOptions both = parse_link("2.5gbit", "500us");
  EXPECT_EQ(both.bits_per_second, 2'500'000'000u);
  EXPECT_EQ(both.delay, std::chrono::microseconds(500));
  EXPECT_FALSE(parse_link("", "").paces());
}

TEST(LinkOptions, WhatIsOutOfRangeIsRefusedWithTheRange) {
  EXPECT_EQ(parse_link("1kbit", "10s").bits_per_second, 1000u);
  for (const char* rate : {"999bit", "1bit", "0kbit", "1001gbit", "100", "fast"}) {
    EXPECT_THAT(refusal([&] { parse_link(rate, ""); }), HasSubstr("link rate")) << rate;
    EXPECT_THAT(refusal([&] { parse_link(rate, ""); }), HasSubstr("from 1kbit to 1000gbit"));
  }
  for (const char* delay : {"10.1s", "1min", "5", "soon"})
    EXPECT_THAT(refusal([&] { parse_link("", delay); }), HasSubstr("link delay")) << delay;
}

}  // namespace
}  // namespace starling
