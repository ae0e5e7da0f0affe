// GzipReader: the unpacked bytes of a gzip file, a piece at a time, so that what a packed header
// declares can be checked before memory is asked for. Not thread-safe.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace starling::data {

// True when the bytes begin as a gzip file does.
bool is_gzip(std::span<const std::byte> bytes);

// Deflate can't pack better than this many bytes into one: a larger claim is false.
inline constexpr uint64_t kMaxGzipRatio = 1032;

class GzipReader {
 public:
  // `packed` must outlive the reader; `name` is for messages.
  GzipReader(std::span<const std::byte> packed, std::string name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Unpacks up to out.size() bytes; fewer only at the end of the file. Throws Error when the file
  // is damaged or cut short.
  size_t read(std::span<std::byte> out);

 private:
  bool next_member();

  std::span<const std::byte> packed_;  // what zlib has not been given yet
  std::string name_;
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace starling::data
