#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace starling {
namespace {

Failure late() { return {FailureKind::kDeadline, 3, "receive rank=2: peer 3 was late"}; }

TEST(Result, HoldsAValueOrAFailure) {
  const Result<int> good = 5;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 5);
  const Result<int> bad = late();
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.failure().kind, FailureKind::kDeadline);
  EXPECT_EQ(bad.failure().peer, 3);
  EXPECT_THROW(static_cast<void>(bad.value()), std::logic_error);
}

TEST(Result, MovesItsValueOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(Status, IsDoneOrSaysWhyNot) {
  EXPECT_TRUE(Status().ok());
  const Status bad = late();
  EXPECT_FALSE(bad.ok());
  EXPECT_STREQ(name_of(bad.failure().kind), "deadline");
}

}  // namespace
}  // namespace starling
