#include "tensor/tree_sum.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"

namespace starling {
namespace {

// The tree written out, as a reader would check it by hand.
const char* const kShapes[] = {
    "0",
    "(0+1)",
    "((0+1)+2)",
    "((0+1)+(2+3))",
    "(((0+1)+(2+3))+4)",
    "(((0+1)+(2+3))+(4+5))",
    "(((0+1)+(2+3))+((4+5)+6))",
    "(((0+1)+(2+3))+((4+5)+(6+7)))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+8)",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+(8+9))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+((8+9)+10))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+((8+9)+(10+11)))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+(((8+9)+(10+11))+12))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+(((8+9)+(10+11))+(12+13)))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+(((8+9)+(10+11))+((12+13)+14)))",
    "((((0+1)+(2+3))+((4+5)+(6+7)))+(((8+9)+(10+11))+((12+13)+(14+15))))",
    "(((((0+1)+(2+3))+((4+5)+(6+7)))+(((8+9)+(10+11))+((12+13)+(14+15))))+16)",
};

// Values of very different size, so that another order of sums gives other bits.
std::vector<std::vector<float>> random_shards(size_t count, size_t n) {
  std::vector<std::vector<float>> shards(count, std::vector<float>(n));
  for (size_t k = 0; k < count; ++k) {
    const RandomStream stream(1, Draw::kSynthetic, 0, k);
    for (size_t i = 0; i < n; ++i) {
      shards[k][i] = std::ldexp(stream.normal(i), static_cast<int>(stream.bits(i) % 12));
    }
  }
  return shards;
}

std::vector<const float*> pointers(const std::vector<std::vector<float>>& shards) {
  std::vector<const float*> result;
  for (const auto& shard : shards) result.push_back(shard.data());
  return result;
}

// Evaluates a tree of kShapes for element i, one addition after another.
float evaluate(const char*& text, const std::vector<std::vector<float>>& shards, size_t i) {
  if (*text != '(') {
    char* end = nullptr;
    const size_t shard = std::strtoul(text, &end, 10);
    text = end;
    return shards[shard][i];
  }
  ++text;
  const float left = evaluate(text, shards, i);
  ++text;
  const float right = evaluate(text, shards, i);
  ++text;
  return left + right;
}

std::vector<float> expected_sums(const std::vector<std::vector<float>>& shards, size_t n) {
  std::vector<float> sums(n);
  for (size_t i = 0; i < n; ++i) {
    const char* text = kShapes[shards.size() - 1];
    sums[i] = evaluate(text, shards, i);
  }
  return sums;
}

TEST(TreeReduce, SplitsAtTheLargestPowerOfTwoBelowTheCount) {
  for (size_t count = 1; count <= 17; ++count) {
    std::vector<std::string> leaves;
    for (size_t i = 0; i < count; ++i) leaves.push_back(std::to_string(i));
    const std::string shape = tree_reduce<std::string>(
        leaves, [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
    EXPECT_EQ(shape, kShapes[count - 1]);
  }
}

TEST(TreeSum, HasTheBitsOfTheTreeForEveryCountLengthAndTarget) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (size_t count = 1; count <= 17; ++count) {
      for (size_t n : {0u, 1u, 7u, 16u, 511u, 513u, 4096u}) {
        const auto shards = random_shards(count, n);
        std::vector<float> sums(n + 1, 7.0f);
        tree_sum(pointers(shards), n, sums.data());
        EXPECT_EQ(sums.back(), 7.0f);
        sums.pop_back();
        EXPECT_EQ(sums, expected_sums(shards, n)) << count << " shards of " << n;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(TreeSum, MayWriteOverTheFirstShard) {
  for (size_t count : {1u, 2u, 5u, 8u, 13u, 17u}) {
    auto shards = random_shards(count, 1000);
    const std::vector<float> expected = expected_sums(shards, 1000);
    tree_sum(pointers(shards), 1000, shards[0].data());
    EXPECT_EQ(shards[0], expected);
  }
}

TEST(TreeSum, OfDoublesFollowsTheTree) {
  EXPECT_EQ(tree_sum({}), 0.0);
  const std::vector<double> values = {1.0, 0x1p-53, 0x1p-53, 0x1p-53};
  // (1 + ε/2) + (ε/2 + ε/2): the lone half is lost, the pair is not.
  EXPECT_EQ(tree_sum(values), 1.0 + 0x1p-52);
}

TEST(TreeSum, AnotherOrderOfLeavesHasOtherBits) {
  const size_t n = 4096;
  for (size_t count : {3u, 4u, 8u}) {
    auto shards = random_shards(count, n);
    std::vector<float> sums(n), swapped(n);
    tree_sum(pointers(shards), n, sums.data());
    std::swap(shards[1], shards[2]);
    tree_sum(pointers(shards), n, swapped.data());
    EXPECT_NE(sums, swapped);
  }
}

#ifdef STARLING_SWAPPED_TREE
TEST(TreeSum, TheSwappedTreeHasOtherBitsUntilItIsTurnedOff) {
  const size_t n = 4096;
  for (size_t count : {3u, 4u, 8u, 17u}) {
    const auto shards = random_shards(count, n);
    std::vector<float> sums(n);
    set_swapped_tree(true);
    tree_sum(pointers(shards), n, sums.data());
    EXPECT_NE(sums, expected_sums(shards, n));
    set_swapped_tree(false);
    tree_sum(pointers(shards), n, sums.data());
    EXPECT_EQ(sums, expected_sums(shards, n));
  }
}
#endif

}  // namespace
}  // namespace starling
