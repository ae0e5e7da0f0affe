#include "data/element.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/kernels.h"

namespace starling::data {
namespace {

template <typename T, bool kSwap>
T load(const std::byte* from) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if constexpr (kSwap) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

template <typename T, bool kSwap>
void convert(const std::byte* __restrict numbers, size_t count, float scale,
             float* __restrict out) {
  // Blocks of a fixed length are what the compiler vectorises at -O2.
  constexpr size_t kBlock = 16;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (size_t j = 0; j < kBlock; ++j) {
      out[i + j] = static_cast<float>(load<T, kSwap>(numbers + (i + j) * sizeof(T))) * scale;
    }
  }
  for (; i < count; ++i) {
    out[i] = static_cast<float>(load<T, kSwap>(numbers + i * sizeof(T))) * scale;
  }
}

template <typename T>
void convert(bool big_endian, const std::byte* numbers, size_t count, float scale, float* out) {
  if (big_endian == (std::endian::native == std::endian::big)) {
    convert<T, false>(numbers, count, scale, out);
  } else {
    convert<T, true>(numbers, count, scale, out);
  }
}

}  // namespace

size_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::kU8:
    case ElementType::kI8:
      return 1;
    case ElementType::kI16:
      return 2;
    case ElementType::kI32:
    case ElementType::kF32:
      return 4;
    case ElementType::kI64:
    case ElementType::kF64:
      break;
  }
  return 8;
}

std::string_view element_name(ElementType type) {
  constexpr std::array<std::string_view, 7> kNames = {"u8",  "i8",  "i16", "i32",
                                                      "i64", "f32", "f64"};
  return kNames[static_cast<size_t>(type)];
}

void to_float(ElementType type, bool big_endian, const std::byte* numbers, size_t count,
              float scale, float* out) {
  switch (type) {
    case ElementType::kU8:  // images
      return from_u8(static_cast<int64_t>(count), scale, reinterpret_cast<const uint8_t*>(numbers),
                     out);
    case ElementType::kI8:
      return convert<int8_t>(big_endian, numbers, count, scale, out);
    case ElementType::kI16:
      return convert<int16_t>(big_endian, numbers, count, scale, out);
    case ElementType::kI32:
      return convert<int32_t>(big_endian, numbers, count, scale, out);
    case ElementType::kI64:
      return convert<int64_t>(big_endian, numbers, count, scale, out);
    case ElementType::kF32:
      return convert<float>(big_endian, numbers, count, scale, out);
    case ElementType::kF64:
      return convert<double>(big_endian, numbers, count, scale, out);
  }
}

size_t first_non_finite(std::span<const float> values) {
  // Done for every sample, so whole blocks are tested without a branch; only a block that fails
  // is looked at again.
  constexpr size_t kBlock = 64;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    uint32_t bad = 0;
    for (size_t j = 0; j < kBlock; ++j) {
      const uint32_t exponent = std::bit_cast<uint32_t>(values[i + j]) & 0x7F800000u;
      bad |= exponent == 0x7F800000u ? 1u : 0u;
    }
    if (bad != 0) break;
  }
  while (i < values.size() && std::isfinite(values[i])) ++i;
  return i;
}

}  // namespace starling::data
