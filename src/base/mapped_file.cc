#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "starling/error.h"

namespace starling {
namespace {

// Closes a descriptor when mapping is done or has failed: a mapping outlives it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error open_error(const std::filesystem::path& path, int code) {
  if (code == ENOENT || code == ENOTDIR) {
    return input_error(fmt::format("{}: there is no such file", path.string()),
                       "check the path; relative ones start at the current folder");
  }
  return input_error(fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(code)),
                     "check that you may read the file");
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw open_error(path, errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw open_error(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw input_error(fmt::format("{}: is not a regular file", path.string()),
                      "give the path of a file, not of a folder or device");
  }
  const size_t size = static_cast<size_t>(status.st_size);
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) throw open_error(path, errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::read_ahead() const {
  // Advice only: a kernel that refuses it reads the pages when they are touched.
  if (!bytes_.empty()) {
    ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_WILLNEED);
  }
}

}  // namespace starling
