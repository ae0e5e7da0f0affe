// MappedFile: a whole file as read-only memory. Pages are read when they are touched, and shared
// with every process that maps the same file. The file must not be cut short while it is mapped:
// touching a page that is gone ends the process (SIGBUS). Reads are thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace starling {

class MappedFile {
 public:
  // Throws Error (input_error) when there is no such file, it is not a regular file, or it can't
  // be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

  // Asks the kernel to start reading all of it into memory; returns at once.
  void read_ahead() const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace starling
