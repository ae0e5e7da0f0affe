// Random numbers without state: Philox4x32-10, a counter-based generator (Salmon et al., 2011).
// A draw is a pure function of its key and counter, so it is the same whoever draws it, in any
// order: that is what makes shuffling, dropout and initial weights independent of lanes and
// workers. Everything here is thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace starling {

// What a stream of draws is for: streams with different purposes never share numbers.
enum class Draw : uint32_t {
  kShuffle = 1,
  kDropout = 2,
  kInitialize = 3,
  kAugment = 4,
  kSynthetic = 5,
  kSplit = 6
};

using RandomBlock = std::array<uint32_t, 4>;

// The Philox4x32-10 block function: 128 random bits of a 128-bit counter and a 64-bit key.
RandomBlock philox(const RandomBlock& counter, uint64_t key);

// One stream of numbers, addressed by index: key (seed, purpose), counter (a, b, index).
// For dropout the seed has the operator in it, a is the epoch and b is the sample.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Draw purpose, uint32_t a = 0, uint64_t b = 0);

  // The four numbers of block `index`; elements 4·index … 4·index+3 of the stream.
  RandomBlock block(uint32_t index) const;
  uint32_t bits(uint64_t element) const;
  // Uniform in [0, 1) with 24 bits.
  float uniform(uint64_t element) const;
  // Standard normal (Box–Muller on two uniforms of the stream).
  float normal(uint64_t element) const;

  uint64_t key() const { return key_; }
  const RandomBlock& counter() const { return counter_; }  // element 0 is the block index

 private:
  uint64_t key_;
  RandomBlock counter_;
};

// A well-mixed 64-bit hash of 64 bits (the finaliser of splitmix64).
uint64_t mix64(uint64_t value);
// FNV-1a, then mixed: a name as a number that is the same everywhere.
uint64_t hash_name(std::string_view name);

// A seeded permutation of 0 … size−1 with no memory: a Feistel network that walks its cycle
// until it lands inside. Any worker can ask for any position.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint32_t epoch);
  uint64_t size() const { return size_; }
  // The element at `position`; requires position < size.
  uint64_t operator()(uint64_t position) const;

 private:
  uint64_t size_;
  uint32_t half_bits_;
  std::array<uint64_t, 6> round_keys_;
};

}  // namespace starling
