#include "starling/shape.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {

Shape::Shape(std::initializer_list<int64_t> extents)
    : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) {
  if (extents.size() > kMaxRank) {
    throw input_error(
        fmt::format("a shape has {} extents, at most {} are supported", extents.size(), kMaxRank),
        "merge some of the extents with reshape");
  }
  // The product is kept far from overflow, so that every size computed from it is safe.
  constexpr int64_t kMaxElements = int64_t{1} << 48;
  int64_t elements = 1;
  for (int64_t extent : extents) {
    if (extent < 1 || extent > kMaxElements / elements) {
      throw input_error(fmt::format("a shape has the extent {}", extent),
                        "extents are at least 1, and their product is at most 2^48");
    }
    elements *= extent;
    extents_[static_cast<size_t>(rank_++)] = extent;
  }
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

std::string Shape::to_string() const {
  if (rank_ == 0) return "scalar";
  return fmt::format("{}", fmt::join(extents_.begin(), extents_.begin() + rank_, "×"));
}

}  // namespace starling
