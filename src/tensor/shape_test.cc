#include "starling/shape.h"

#include <gtest/gtest.h>

#include "starling/error.h"

namespace starling {
namespace {

TEST(Shape, CountsElementsAndPrints) {
  const Shape image{28, 28, 3};
  EXPECT_EQ(image.elements(), 28 * 28 * 3);
  EXPECT_EQ(image.to_string(), "28×28×3");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape{}.to_string(), "scalar");
}

TEST(Shape, RefusesExtentsThatAreNotPositive) {
  EXPECT_THROW((Shape{3, 0}), Error);
  EXPECT_THROW((Shape{-1}), Error);
}

TEST(Shape, RefusesHugeProductsInsteadOfOverflowing) {
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), Error);
}

}  // namespace
}  // namespace starling
