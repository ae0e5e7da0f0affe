#include "job/suggest.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Suggest, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("batch", "batch"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("epoch", "epochs"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("bacth", "batch"), 1u) << "neighbours that are swapped";
}

TEST(Suggest, FindsTheNearestWord) {
  const std::vector<std::string> words = {"train", "eval", "predict", "describe", "tune", "data"};
  EXPECT_EQ(nearest("trian", words), "train");
  EXPECT_EQ(nearest("evla", words), "eval");
  EXPECT_EQ(nearest("desc", words), "describe") << "the beginning of a word";
}

TEST(Suggest, GivesNothingForAWordThatIsFarFromAll) {
  EXPECT_EQ(nearest("xyzzy", {"train", "eval"}), std::nullopt);
  EXPECT_EQ(nearest(std::string(5000, 'a'), {"train"}), std::nullopt);
  EXPECT_EQ(nearest("train", {}), std::nullopt);
}

}  // namespace
}  // namespace starling
