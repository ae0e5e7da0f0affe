#include "fabric/paced/wire.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant wire_time(std::chrono::nanoseconds since) { return Instant(seconds(1000)) + since; }

TEST(Wire, CountsTheSegmentsOfAStream) {
  EXPECT_EQ(wire_bytes(0), 0u);
  EXPECT_EQ(wire_bytes(1), 67u);
  EXPECT_EQ(wire_bytes(1448), 1514u);
  EXPECT_EQ(wire_bytes(1449), 1449u + 2 * 66);
}

TEST(Wire, SendsOneAfterAnother) {
  Wire wire(8'000'000);  // a byte is a microsecond
  EXPECT_EQ(wire.send(1000, wire_time(milliseconds(0))), wire_time(milliseconds(1)));
  EXPECT_EQ(wire.send(2000, wire_time(milliseconds(0))), wire_time(milliseconds(3)));
  EXPECT_EQ(wire.send(1000, wire_time(milliseconds(2))), wire_time(milliseconds(4)));
}

TEST(Wire, APauseIsNotSavedUp) {
  Wire wire(8'000'000);
  wire.send(1000, wire_time(milliseconds(0)));
  EXPECT_EQ(wire.send(1000, wire_time(milliseconds(500))), wire_time(milliseconds(501)));
}

TEST(Wire, WhatComesAtItsRateIsInAtOnce) {
  Wire wire(8'000'000);
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(1))), wire_time(milliseconds(1)));
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(2))), wire_time(milliseconds(2)));
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(9))), wire_time(milliseconds(9)));
}

TEST(Wire, WhatComesFasterQueues) {
  Wire wire(8'000'000);
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(1))), wire_time(milliseconds(1)));
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(1))), wire_time(milliseconds(2)));
  EXPECT_EQ(wire.receive(1000, wire_time(milliseconds(1))), wire_time(milliseconds(3)));
}

TEST(Wire, WithoutALimitNothingTakesTime) {
  Wire wire(0);
  EXPECT_EQ(wire.send(1 << 30, wire_time(milliseconds(5))), wire_time(milliseconds(5)));
  EXPECT_EQ(wire.receive(1 << 30, wire_time(milliseconds(6))), wire_time(milliseconds(6)));
}

TEST(Wire, KeepsItsRateOverManySmallParcels) {
  Wire wire(1'000'000'000);
  Instant out{};
  for (int i = 0; i < 1'000'000; ++i) out = wire.send(125, wire_time(seconds(0)));
  EXPECT_EQ(out, wire_time(seconds(1)));
}

}  // namespace
}  // namespace starling
