#include "base/quantity.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

using std::chrono::nanoseconds;

TEST(Quantity, BitRatesCountInThousands) {
  EXPECT_EQ(parse_bit_rate("9600bit"), 9600u);
  EXPECT_EQ(parse_bit_rate("500kbit"), 500'000u);
  EXPECT_EQ(parse_bit_rate("100mbit"), 100'000'000u);
  EXPECT_EQ(parse_bit_rate("2.5gbit"), 2'500'000'000u);
  EXPECT_EQ(parse_bit_rate("1000gbit"), 1'000'000'000'000u);
}

TEST(Quantity, WhatIsNoBitRate) {
  for (const char* text : {"", "100", "mbit", "100 mbit", "100mb", "100mbits", "100Mbit", "-1mbit",
                           "0mbit", "0.1bit", "1e3mbit", "infmbit", "nanmbit", "1001gbit",
                           "1.2.3mbit", "0x10mbit", "100mbit/s", "5ms", "1e999gbit"}) {
    EXPECT_FALSE(parse_bit_rate(text)) << text;
  }
}

TEST(Quantity, Durations) {
  EXPECT_EQ(parse_duration("250ns"), nanoseconds(250));
  EXPECT_EQ(parse_duration("500us"), nanoseconds(500'000));
  EXPECT_EQ(parse_duration("5ms"), nanoseconds(5'000'000));
  EXPECT_EQ(parse_duration("0.1s"), nanoseconds(100'000'000));
  EXPECT_EQ(parse_duration("0ms"), nanoseconds(0));
}

TEST(Quantity, WhatIsNoDuration) {
  for (const char* text :
       {"", "5", "ms", "5 ms", "-5ms", "5days", "1e3ms", "infs", "86401s", "100mbit"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

}  // namespace
}  // namespace starling
