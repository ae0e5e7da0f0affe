#include "base/claim.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace starling {
namespace {

TEST(Claim, LeavesWhatIsThere) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f, -0.0f, 1.5f, inf, -inf};
  const std::vector<float> before = values;
  for (const float& value : values) claim(&value);
  EXPECT_EQ(values, before);
}

TEST(Claim, PaysAsForced) {
  const bool here = claims_pay();
  for (const bool pay : {true, false}) {
    force_claims(pay);
    EXPECT_EQ(claims_pay(), pay);
  }
  force_claims(std::nullopt);
  EXPECT_EQ(claims_pay(), here);
}

}  // namespace
}  // namespace starling
