#include "base/claim.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace starling {
namespace {

TEST(Claim, LeavesWhatIsThere) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> before = {-0.0f, 1.5f, -Limits::infinity(), Limits::denorm_min(),
                                     Limits::quiet_NaN()};
  std::vector<float> values = before;
  for (const float& value : values) claim(&value);
  EXPECT_EQ(std::memcmp(values.data(), before.data(), before.size() * sizeof(float)), 0);
}

TEST(Claim, PaysAsForced) {
  const bool here = claims_pay(), copies_here = copies_pay();
  for (const bool pay : {true, false}) {
    force_claims(pay);
    EXPECT_EQ(claims_pay(), pay);
    EXPECT_EQ(copies_pay(), pay);
  }
  force_claims(std::nullopt);
  EXPECT_EQ(claims_pay(), here);
  EXPECT_EQ(copies_pay(), copies_here);
}

}  // namespace
}  // namespace starling
