// Products for the tests of gemm.h and its kin: operands of chosen layout, and plain sums.
#pragma once

#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tensor/buffer.h"
#include "tensor/gemm.h"

namespace starling {

inline std::vector<float> numbers(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, Draw::kSynthetic);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * stream.uniform(i) - 1;
  return values;
}

// The bits of each element: two zeros may differ.
inline std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

// Runs with each instruction set that there is.
template <class Run>
void for_every_target(const Run& run) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    run();
  }
  hwy::SetSupportedTargetsForTest(0);
}

struct Product {
  Product(GemmShape s, bool a_by_rows, bool b_by_rows)
      : shape(s),
        a_floats(numbers(s.m * s.k, 1)),
        b_floats(numbers(s.k * s.n, 2)),
        a{a_floats.data(), a_by_rows ? s.k : 1, a_by_rows ? 1 : s.m},
        b{b_floats.data(), b_by_rows ? s.n : 1, b_by_rows ? 1 : s.k} {}

  // `multiply` is gemm, or another with its arguments.
  template <class Multiply>
  std::vector<float> run(bool accumulate, size_t scratch_floats, const Multiply& multiply) const {
    std::vector<float> c(static_cast<size_t>(shape.m * shape.n), 0.5f);
    Buffer<float> scratch(scratch_floats);
    std::fill_n(scratch.data(), scratch_floats, std::nanf(""));
    multiply(shape, a, b, accumulate, c.data(), scratch.data());
    return c;
  }

  // `operand` is what becomes of an element before it is multiplied.
  template <class Operand>
  double expected(int64_t i, int64_t j, bool accumulate, const Operand& operand) const {
    double sum = accumulate ? 0.5 : 0;
    for (int64_t k = 0; k < shape.k; ++k) {
      sum += double{operand(a.data[i * a.row_stride + k * a.column_stride])} *
             operand(b.data[k * b.row_stride + j * b.column_stride]);
    }
    return sum;
  }

  // The part of shard `shard` of all that are stacked in this one's rows, or along its k.
  Product row_shard(int64_t shard) const {
    const int64_t rows = shape.m / shape.row_shards;
    Product one({rows, shape.n, shape.k}, true, b.column_stride == 1);
    one.a = {a.data + shard * rows * shape.k, shape.k, 1};
    return one;
  }
  Product depth_shard(int64_t shard) const {
    const int64_t depth = shape.k / shape.depth_shards;
    Product one({shape.m, shape.n, depth}, false, true);
    one.a = {a.data + shard * depth * shape.m, 1, shape.m};
    one.b = {b.data + shard * depth * shape.n, shape.n, 1};
    return one;
  }

  GemmShape shape;
  std::vector<float> a_floats, b_floats;
  MatrixView a, b;
};

}  // namespace starling
