// Shape: the extents of a tensor, outermost first. Shapes of values in a model are those of one
// sample; the batch is never part of them. Images are {height, width, channels}.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace starling {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  // Throws Error when there are more than kMaxRank extents or one is below 1.
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis)]; }
  int64_t back() const { return extents_[static_cast<size_t>(rank_ - 1)]; }

  // The product of the extents; 1 for a scalar.
  int64_t elements() const;

  // As "28×28×1"; "scalar" for rank 0.
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace starling
