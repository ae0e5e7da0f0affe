// Numbers as files hold them, turned into floats. Memory need not be aligned. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace starling::data {

enum class ElementType : uint8_t { kU8, kI8, kI16, kI32, kI64, kF32, kF64 };

size_t element_bytes(ElementType type);
std::string_view element_name(ElementType type);

// Writes float(x) · scale for each of `count` numbers.
void to_float(ElementType type, bool big_endian, const std::byte* numbers, size_t count,
              float scale, float* out);

// The index of the first value that is infinite or not a number; values.size() if there is none.
size_t first_non_finite(std::span<const float> values);

}  // namespace starling::data
