// Slices and chunks: how a vector is cut. A *slice* is the part that one rank owns; a *chunk* is
// the part of a slice that travels as one message. Both follow from agreed numbers alone, so that
// sender and receiver never have to tell each other. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace starling {

// Positions begin … end−1 of a vector.
struct Span {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

// Slice `index` when 0 … length−1 is cut into `parts` slices whose edges are multiples of `unit`,
// balanced to within one unit.
inline Span slice_at(size_t length, size_t parts, size_t unit, size_t index) {
  const size_t units = (length + unit - 1) / unit;
  const size_t least = units / parts, larger = units % parts;
  const auto cut = [&](size_t i) {
    return std::min(length, (i * least + std::min(i, larger)) * unit);
  };
  return {cut(index), cut(index + 1)};
}

// All of them: slice i is from cuts[i] to cuts[i + 1].
inline std::vector<size_t> slice_cuts(size_t length, size_t parts, size_t unit) {
  std::vector<size_t> cuts = {0};
  for (size_t i = 0; i < parts; ++i) cuts.push_back(slice_at(length, parts, unit, i).end);
  return cuts;
}

// How many chunks a slice of that size makes; none when it is empty.
inline size_t chunk_count(size_t size, size_t chunk) { return (size + chunk - 1) / chunk; }

// Chunk k of a slice.
inline Span chunk_of(Span slice, size_t chunk, size_t k) {
  const size_t begin = slice.begin + k * chunk;
  return {begin, std::min(slice.end, begin + chunk)};
}

}  // namespace starling
