#include "base/float_flags.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(FloatFlags, AreRaisedByArithmeticAndStayUntilTheyAreCleared) {
  volatile float large = 1e30f, small = 1e-30f, result = 0;
  clear_arithmetic_flags();
  result = small * small;
  EXPECT_FALSE(arithmetic_raised()) << "too small is no harm";
  result = large * large;
  result = 1;
  EXPECT_TRUE(arithmetic_raised()) << result;
  clear_arithmetic_flags();
  EXPECT_FALSE(arithmetic_raised());
  raise_overflow();
  EXPECT_TRUE(arithmetic_raised());
  clear_arithmetic_flags();
}

}  // namespace
}  // namespace starling
