#include "param/kept_slice.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace starling {
namespace {

class KeptSliceTest : public testing::Test {
 protected:
  KeptSliceTest() {
    space_.add("bias", {100}, {.weight_decay = 0});
    space_.add("weight", {3 * kBlockElements}, {});
    weights_ = Buffer<float>(space_.total_floats());
    state_ = Buffer<float>(space_.total_floats());
    for (size_t i = 0; i < weights_.size(); ++i) weights_.data()[i] = std::sin(0.1f * float(i));
  }

  KeptSlice keep(size_t first, size_t last) {
    return KeptSlice(space_, first, last, weights_.span(),
                     [this](size_t, size_t offset) { return state_.data() + offset; });
  }

  ParameterSpace space_;
  Buffer<float> weights_, state_;
  const Optimizer optimizer_ = momentum(0.1);
};

TEST_F(KeptSliceTest, AnUpdateIsThatOfTheBlocksAndOfNoOthers) {
  KeptSlice slice = keep(1, 3);
  const std::span<float> room = slice.room_for(5);
  ASSERT_EQ(room.size(), slice.weights().size());
  for (size_t i = 0; i < room.size(); ++i) room[i] = std::cos(0.3f * static_cast<float>(i));
  const UpdateSettings settings(optimizer_, 0.1, 0);
  const std::array parts{KeptSlice::Part{room.data(), 16}};
  slice.apply(parts, settings, 1);
  std::vector<float> expected(weights_.span().begin(), weights_.span().end());
  std::vector<float> states(expected.size(), 0.0f);
  for (size_t b = 1; b < 3; ++b) {
    const Block& block = space_.blocks()[b];
    float* state[] = {states.data() + block.offset};
    const float* const gradient = room.data() + (block.offset - slice.offset());
    ASSERT_TRUE(update_block(settings, {}, {&gradient, 1}, block.size,
                             expected.data() + block.offset, state));
  }
  for (size_t i = 0; i < room.size(); ++i)
    ASSERT_EQ(slice.weights()[i], expected[slice.offset() + i]) << i;
  for (size_t i = 0; i < states.size(); ++i) ASSERT_EQ(state_.data()[i], states[i]) << i;
}

TEST_F(KeptSliceTest, SeveralGradientsCountByTheirSamples) {
  KeptSlice one = keep(0, 1), several = keep(0, 1);
  for (float& value : one.room_for(0)) value = 0.75f * 2 + 0.25f * -4;
  for (float& value : several.room_for(1)) value = 2;
  for (float& value : several.room_for(2)) value = -4;
  const UpdateSettings settings(sgd(0.5), 0.5, 0);
  one.apply(std::array{KeptSlice::Part{one.room_for(0).data(), 1}}, settings, 0);
  several.apply(std::array{KeptSlice::Part{several.room_for(1).data(), 30},
                           KeptSlice::Part{several.room_for(2).data(), 10}},
                settings, 0);
  for (size_t i = 0; i < one.weights().size(); ++i)
    ASSERT_FLOAT_EQ(several.weights()[i], one.weights()[i]);
}

TEST_F(KeptSliceTest, ASliceMayBeEmpty) {
  KeptSlice slice = keep(2, 2);
  EXPECT_TRUE(slice.weights().empty());
  EXPECT_TRUE(slice.room_for(0).empty());
}

}  // namespace
}  // namespace starling
