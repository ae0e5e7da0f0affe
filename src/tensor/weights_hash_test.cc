#include "tensor/weights_hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "starling/error.h"

namespace starling {
namespace {

// The expected value is that of
// printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x00\x3f\x00\x00\x80\xbf\x00\x00\x50\x40' |
// sha256sum
TEST(WeightsHash, IsOverTheBytesInNameOrderWithoutPadding) {
  ParameterSpace space;
  space.add("weight", {3}, {});
  space.add("bias", {2}, {});
  std::vector<float> weights(space.total_floats(), 77.0f);
  weights[0] = 0.5f;
  weights[1] = -1.0f;
  weights[2] = 3.25f;
  weights[16] = 1.0f;
  weights[17] = 2.0f;
  const std::string expected = "d3a6ac847e33e507537701568cfd6bcfa7c95825fba7eea0399f0c464d871d1a";
  EXPECT_EQ(weights_sha256(space, weights), expected);
  weights[3] = 5.0f;
  EXPECT_EQ(weights_sha256(space, weights), expected);
  weights[17] = -2.0f;
  EXPECT_NE(weights_sha256(space, weights), expected);
}

TEST(WeightsHash, OfNoParametersIsThatOfNoBytes) {
  EXPECT_EQ(weights_sha256(ParameterSpace(), {}),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(WeightsHash, RefusesWeightsOfAnotherSpace) {
  ParameterSpace space;
  space.add("weight", {3}, {});
  EXPECT_THROW(weights_sha256(space, std::vector<float>(3)), Error);
}

}  // namespace
}  // namespace starling
