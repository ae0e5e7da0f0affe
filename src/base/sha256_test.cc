#include "base/sha256.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

// Known answers of FIPS 180-2.
TEST(Sha256, GivesTheKnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, StreamsAndGoesOnAfterADigest) {
  Sha256 hash;
  hash.update("a");
  EXPECT_EQ(hash.hex(), sha256_hex("a"));
  hash.update("bc");
  EXPECT_EQ(hash.hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace starling
