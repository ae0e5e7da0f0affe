#include "engine/late_gradients.h"

#include <algorithm>

#include "engine/dense_product.h"

namespace starling {
namespace {

// Floats of a gradient that are computed at a time: they stay in the cache, and are rows enough
// that packing the operands is of no weight.
constexpr int64_t kPieceFloats = int64_t{1} << 19;

// At least those of which a block has elements.
int64_t piece_rows(const LateProduct& product) {
  const int64_t of_block = static_cast<int64_t>(kBlockElements) / product.in + 2;
  return std::min(product.out, std::max(kPieceFloats / product.in, of_block));
}

GemmShape shape_of(const LateLayout& layout, const LateProduct& product, int64_t rows) {
  return {.m = rows,
          .n = product.in,
          .k = layout.samples() * product.sample_rows,
          .depth_shards = layout.shards()};
}

// Of a product; what comes behind begins at a cache line.
size_t scratch_floats(Precision precision, const GemmShape& shape) {
  return round_up(dense_product(precision).scratch_floats(shape), kAlignment / sizeof(float));
}

}  // namespace

LateGradients::LateGradients(const LateLayout& layout, Precision precision, float* area, int lanes)
    : layout_(layout), precision_(precision), area_(area) {
  size_t most = 0;
  for (const LateProduct& product : layout_.products()) {
    const int64_t rows = piece_rows(product);
    const GemmShape shape = shape_of(layout_, product, rows);
    most =
        std::max(most, scratch_floats(precision_, shape) + static_cast<size_t>(rows * product.in));
  }
  for (int lane = 0; lane < lanes; ++lane) scratch_.emplace_back(most);
}

size_t LateGradients::bytes() const {
  size_t floats = layout_.floats();
  for (const Buffer<float>& of_lane : scratch_) floats += of_lane.size();
  return floats * sizeof(float);
}

LateGradients::Piece LateGradients::compute(int lane, const LateProduct& product, size_t first,
                                            size_t last) {
  const auto in = static_cast<size_t>(product.in);
  const size_t row = first / in;
  const size_t rows =
      std::min(static_cast<size_t>(piece_rows(product)), (last + in - 1) / in - row);
  const GemmShape shape = shape_of(layout_, product, static_cast<int64_t>(rows));
  float* const scratch = scratch_[static_cast<size_t>(lane)].data();
  float* const piece = scratch + scratch_floats(precision_, shape);
  dense_product(precision_)
      .multiply(shape, {area_ + product.dz + row, 1, product.out},
                {area_ + product.x, product.in, 1}, false, piece, scratch);
  return {row * in, (row + rows) * in, piece};
}

}  // namespace starling
