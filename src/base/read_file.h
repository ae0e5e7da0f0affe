// Whole regular files read into memory, with their size checked before anything is allocated: a
// limit given by the caller, and the memory of the machine. Every failure is an input Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace starling {

// Owned bytes, not zeroed before they are read.
class FileBytes {
 public:
  explicit FileBytes(size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_;
};

FileBytes read_bytes(const std::filesystem::path& path, uint64_t max_bytes);
std::string read_text(const std::filesystem::path& path, size_t max_bytes);

}  // namespace starling
