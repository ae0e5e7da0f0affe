// What the transforms of conv_winograd.h share: where they evaluate polynomials, and how
// transformed weights lie.
#pragma once

#include <cstdint>

namespace starling {

inline constexpr int64_t kPatch = 6;    // inputs of a tile, each way
inline constexpr int64_t kPlaces = 36;  // products of a tile
inline constexpr int64_t kStrip = 16;   // filters multiplied at a time
// Floats by which places are set apart, or all would fall on the same few sets of the caches.
inline constexpr int64_t kLine = 16;

// The points are 0, ±a, ±b and ∞; all of these but the last three are exact in f32.
inline constexpr float kA = 0.625f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA,
                       kB3 = kB2 * kB, kA2B2 = kA2 * kB2, kA2PlusB2 = kA2 + kB2;
inline constexpr float kWeight0 = static_cast<float>(1 / (double{kA2} * double{kB2}));
inline constexpr float kWeightA =
    static_cast<float>(1 / (2.0 * double{kA2} * (double{kA2} - double{kB2})));
inline constexpr float kWeightB =
    static_cast<float>(1 / (2.0 * double{kB2} * (double{kB2} - double{kA2})));

inline int64_t round_up_to(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Transformed weights are [place][strip of filters][channel][filter]: from place to place.
inline int64_t weight_place_floats(int64_t channels, int64_t filters) {
  return round_up_to(filters, kStrip) * channels + kLine;
}

}  // namespace starling
