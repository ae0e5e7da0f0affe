#include "cluster/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

// How long others may take to come is the launcher's to say, also over tcp: it knows the limits.
TEST(World, WaitsForTheOthersAsLongAsItIsTold) {
  const TcpListener own, other;  // who has the other never comes
  const std::string why = error_of([&] {
                            const World world({.rank = 0,
                                               .workers = 2,
                                               .fabric = FabricKind::kTcp,
                                               .descriptor = own.fd(),
                                               .ports = {own.address().port, other.address().port},
                                               .patience = std::chrono::milliseconds(60)});
                          }).what();
  int waited_ms = 0;
  ASSERT_EQ(sscanf(why.c_str(), "worker 0 waited %d ms", &waited_ms), 1) << why;
  EXPECT_GE(waited_ms, 60);
  EXPECT_LT(waited_ms, 10'000) << "which is what a fabric waits that is told nothing";
  EXPECT_THAT(why, HasSubstr("missing: 1"));
}

}  // namespace
}  // namespace starling
