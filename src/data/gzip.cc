#include "data/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "starling/error.h"

namespace starling::data {
namespace {

// zlib counts in unsigned int: larger spans are handed over in pieces.
constexpr size_t kMaxPiece = size_t{1} << 30;

Error damaged(const std::string& name, const char* what) {
  return input_error(fmt::format("{}: cannot be unpacked: {}", name, what),
                     "the gzip file is damaged: make or fetch it again");
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

GzipReader::GzipReader(std::span<const std::byte> packed, std::string name)
    : packed_(packed), name_(std::move(name)) {
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipReader::~GzipReader() { inflateEnd(&stream_); }

size_t GzipReader::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size() && !ended_) {
    if (stream_.avail_in == 0) {
      const size_t piece = std::min(packed_.size(), kMaxPiece);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed_.data()));
      stream_.avail_in = static_cast<uInt>(piece);
      packed_ = packed_.subspan(piece);
    }
    const size_t piece = std::min(out.size() - done, kMaxPiece);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream_.avail_out = static_cast<uInt>(piece);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done += piece - stream_.avail_out;
    if (result == Z_STREAM_END) {
      ended_ = !next_member();
    } else if (result == Z_BUF_ERROR) {
      throw damaged(name_, "it ends too early");
    } else if (result != Z_OK) {
      throw damaged(name_, stream_.msg != nullptr ? stream_.msg : zError(result));
    }
  }
  return done;
}

// A gzip file may be several, one after another, as `cat` makes them.
bool GzipReader::next_member() {
  if (stream_.avail_in == 0 && packed_.empty()) return false;
  if (inflateReset(&stream_) != Z_OK) throw damaged(name_, "zlib could not go on");
  return true;
}

}  // namespace starling::data
