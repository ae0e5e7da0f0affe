#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace starling {

RandomBlock philox(const RandomBlock& counter, uint64_t key) {
  RandomBlock c = counter;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

RandomStream::RandomStream(uint64_t seed, Draw purpose, uint32_t a, uint64_t b)
    : key_(mix64(seed ^ mix64(static_cast<uint64_t>(purpose)))),
      counter_{0, a, static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)} {}

RandomBlock RandomStream::block(uint32_t index) const {
  RandomBlock counter = counter_;
  counter[0] = index;
  return philox(counter, key_);
}

uint32_t RandomStream::bits(uint64_t element) const {
  return block(static_cast<uint32_t>(element / 4))[element % 4];
}

float RandomStream::uniform(uint64_t element) const {
  return static_cast<float>(bits(element) >> 8) * 0x1p-24f;
}

float RandomStream::normal(uint64_t element) const {
  // Elements 2k and 2k+1 are the two results of one Box–Muller draw.
  const RandomBlock numbers = block(static_cast<uint32_t>(element / 4));
  const size_t pair = element % 4 / 2 * 2;
  const double u = (numbers[pair] + 0.5) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * (numbers[pair + 1] * 0x1p-32);
  const double radius = std::sqrt(-2 * std::log(u));
  return static_cast<float>(radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

uint64_t mix64(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mix64(hash);
}

Permutation::Permutation(uint64_t size, uint64_t seed, uint32_t epoch) : size_(size) {
  const uint32_t bits = size <= 2 ? 2 : static_cast<uint32_t>(std::bit_width(size - 1));
  half_bits_ = (bits + 1) / 2;
  const RandomStream keys(seed, Draw::kShuffle, epoch);
  for (uint32_t round = 0; round < round_keys_.size(); ++round) {
    const RandomBlock numbers = keys.block(round);
    round_keys_[round] = uint64_t{numbers[0]} << 32 | numbers[1];
  }
}

uint64_t Permutation::operator()(uint64_t position) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = position >> half_bits_, right = position & mask;
    for (uint64_t key : round_keys_) {
      const uint64_t next = left ^ (mix64(right ^ key) & mask);
      left = right;
      right = next;
    }
    position = left << half_bits_ | right;
  } while (position >= size_);
  return position;
}

}  // namespace starling
