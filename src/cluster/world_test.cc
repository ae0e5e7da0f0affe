#include "cluster/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>

#include "error_of.h"
#include "fabric/fabric_testing.h"

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

// One that spins keeps its core from the very worker that it waits for.
TEST(World, SpinsOnlyWithACoreOfItsOwn) {
  const auto spin = [](bool crowded, bool apart) {
    const SharedSegment segment = ShmFabric::make_segment({.world = 1});
    World world({.apart = apart, .crowded = crowded, .descriptor = segment.fd()});
    return world.shm()->spin().count();
  };
  EXPECT_GT(spin(false, false), 0);
  EXPECT_EQ(spin(true, false), 0);
  EXPECT_EQ(spin(false, true), 0);
}

TEST(World, TextsAreComparedToTheirEndHoweverLong) {
  struct Case {
    size_t length;
    std::string ends[2];
    bool differ;
  };
  for (const auto& [length, ends, differ] :
       {Case{5000, {"a", "b"}, true}, Case{5000, {"a", "ab"}, true}, Case{5000, {"a", "a"}, false},
        Case{4094, {"a", "b"}, true}, Case{4094, {"a", "ab"}, true}, Case{4094, {"a", "a"}, false},
        Case{4095, {"a", "b"}, true}}) {
    SCOPED_TRACE(length);
    const SharedSegment segment = ShmFabric::make_segment({.world = 2});
    run_threads(2, [&](int rank) {
      World world({.rank = rank, .workers = 2, .descriptor = segment.fd()});
      const std::string text = std::string(length - 1, 'x') + ends[rank];
      const std::optional<World::Difference> found = world.compare("job", text);
      EXPECT_EQ(found.has_value(), differ);
      if (!found) return;
      EXPECT_EQ(found->worker, 1);
      EXPECT_THAT(found->lines, HasSubstr("\" against \""));
    });
  }
}

}  // namespace
}  // namespace starling
