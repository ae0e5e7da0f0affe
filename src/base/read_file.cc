#include "base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "starling/error.h"

namespace starling {
namespace {

Error read_error(const std::filesystem::path& path, int error_number) {
  const std::string hint = error_number == ENOENT || error_number == ENOTDIR
                               ? "check the path: there is no such file"
                           : error_number == EACCES ? "ask for read permission on the file"
                           : error_number == ENAMETOOLONG || error_number == ELOOP
                               ? "check the path"
                               : "check the disk that holds the file";
  return input_error(fmt::format("cannot read {}: {}", path.string(),
                                 std::generic_category().message(error_number)),
                     hint);
}

class OpenFile {
 public:
  // O_NONBLOCK: a named pipe in the place of a file is refused below, not waited for.
  OpenFile(const std::filesystem::path& path, uint64_t max_bytes)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) throw read_error(path, errno);
    try {
      measure(max_bytes);
    } catch (...) {
      close(descriptor_);
      throw;
    }
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  size_t size() const { return size_; }

  void read_all(std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = read(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw read_error(path_, errno);
      if (count == 0) {
        throw input_error(fmt::format("{} became shorter while it was read", path_.string()),
                          "try again when nothing writes to it");
      }
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

 private:
  void measure(uint64_t max_bytes) {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) throw read_error(path_, errno);
    if (!S_ISREG(status.st_mode)) {
      throw input_error(fmt::format("{} is not a regular file", path_.string()), "give a file");
    }
    const auto bytes = static_cast<uint64_t>(status.st_size);
    const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (bytes > max_bytes || bytes > memory) {
      throw input_error(fmt::format("{} has {} bytes; at most {} are read here", path_.string(),
                                    bytes, std::min(max_bytes, memory)),
                        "check that it is the right file");
    }
    size_ = static_cast<size_t>(bytes);
  }

  std::filesystem::path path_;
  int descriptor_;
  size_t size_ = 0;
};

}  // namespace

FileBytes read_bytes(const std::filesystem::path& path, uint64_t max_bytes) {
  const OpenFile file(path, max_bytes);
  FileBytes bytes(file.size());
  file.read_all(bytes.span());
  return bytes;
}

std::string read_text(const std::filesystem::path& path, size_t max_bytes) {
  const OpenFile file(path, max_bytes);
  std::string text(file.size(), '\0');
  file.read_all(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace starling
