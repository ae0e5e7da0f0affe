// Array: samples along the first axis of a typed array that a file holds (IDX, NPY), and the
// Source made of two of them. Parsers take bytes and check everything that a file declares against
// the bytes that are there, before memory is asked for. An Array shares ownership of its memory,
// a mapped file or an unpacked copy; it is immutable, so reads are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "data/element.h"
#include "starling/data.h"
#include "starling/shape.h"

namespace starling::data {

// A file's bytes, and what keeps them alive.
struct FileBytes {
  std::string name;  // for messages
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Maps the file. Throws Error when it can't be read.
FileBytes map_bytes(const std::filesystem::path& path);

// What a file's header declares.
struct ArrayLayout {
  ElementType type = ElementType::kU8;
  bool big_endian = false;
  uint64_t samples = 0;
  Shape sample;         // {1} when there is only the axis of samples
  uint64_t offset = 0;  // bytes before the first number

  uint64_t sample_bytes() const;
  uint64_t file_bytes() const;  // offset and numbers; make_layout has seen to it that it fits
};

// Checks the extents (samples first) that the file `name` declares. Throws Error when there are
// none or too many of them, one is zero, or the product is beyond any file.
ArrayLayout make_layout(const std::string& name, ElementType type, bool big_endian,
                        std::span<const uint64_t> extents, uint64_t offset);

// Throws Error when the file doesn't have exactly the bytes that its header declares.
void check_length(const std::string& name, const ArrayLayout& layout, uint64_t file_bytes);

struct Array {
  ArrayLayout layout;
  FileBytes file;
  bool mapped = true;  // false when unpacked into memory

  const std::byte* sample(uint64_t id) const {
    return file.bytes.data() + layout.offset + id * layout.sample_bytes();
  }
};

// Joins features and labels. `scale` is for the features. Throws Error when their numbers of
// samples differ.
Dataset join(Array features, Array labels, float scale);

// Throws Error that names the first of `ids` that is not below `size`.
void check_ids(std::span<const uint64_t> ids, uint64_t size, const Source& source);

// Throws Error that names the sample when one of its values is infinite or not a number; `what`
// is "feature" or "label".
void check_finite(std::span<const float> values, uint64_t id, const char* what,
                  const Source& source);

}  // namespace starling::data
