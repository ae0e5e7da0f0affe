// The safetensors format: plain tensors and no code, read by every framework. A file is
//   8 bytes  length N of the header, little-endian
//   N bytes  JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//            "__metadata__": {"key": "text"}}, padded with spaces
//   data     row-major, little-endian, in the order and at the offsets of the header, no holes
//
// We write F32, sorted by name, data aligned to 8 bytes. Reading takes F32, F64, I64 and U8 in any
// order, and trusts nothing: every length is checked against the bytes that are really there before
// it is used. The functions are pure; what parse_safetensors returns points into its input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/shape.h"

namespace starling {

// A tensor with its values; values.size() == shape.elements().
struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

using Metadata = std::map<std::string, std::string>;

enum class SafetensorsType { kF32, kF64, kI64, kU8 };

// One tensor of a parsed file.
struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;  // may be unaligned in files of other writers

  uint64_t elements() const;
};

struct SafetensorsView {
  std::vector<SafetensorsEntry> tensors;  // by name
  Metadata metadata;
};

// Checks the whole file and finds its tensors. Throws input Error, with `where` (the file's name)
// in its message.
SafetensorsView parse_safetensors(std::span<const std::byte> file, std::string_view where);

// The tensors of a parsed file as f32 (F64 is rounded); throws input Error for the other types and
// for shapes that Shape cannot hold.
std::vector<NamedTensor> to_named_tensors(const SafetensorsView& view, std::string_view where);

// What receives the bytes of a file, in order.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// Writes a file of the tensors, given in any order. Requires distinct names in UTF-8, none of them
// "__metadata__", and as many values as each shape says; throws run Error otherwise.
void write_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata,
                       const ByteSink& sink);

// The size of the file that write_safetensors makes.
uint64_t safetensors_bytes(std::span<const NamedTensor> tensors, const Metadata& metadata);

}  // namespace starling
