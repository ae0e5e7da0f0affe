#include "fabric/shm/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "starling/error.h"

namespace starling {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr const char* kHint = "use fewer workers, or a smaller model";

Error no_room(size_t bytes, const std::string& why, const std::string& hint) {
  return run_error(fmt::format("no room for {:.1f} MiB of shared memory: {}",
                               static_cast<double>(bytes) / (1 << 20), why),
                   hint);
}

// The first number of a file, if there is one.
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream stream(path);
  uint64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

// A line "name 123" of a file of them; 0 if it is not there.
uint64_t number_after(const std::string& path, const std::string& name) {
  std::ifstream stream(path);
  std::string word;
  for (uint64_t value = 0; stream >> word >> value;) {
    if (word == name) return value;
  }
  return 0;
}

// What a control group (v2) and those around it leave; what files fill can be had again.
uint64_t available_in_groups(const std::string& group) {
  uint64_t available = UINT64_MAX;
  for (std::string path = group == "/" ? "" : group;; path.resize(path.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + path + "/";
    const auto most = number_in(folder + "memory.max"), used = number_in(folder + "memory.current");
    if (most && used) {
      const uint64_t files = number_after(folder + "memory.stat", "inactive_file") +
                             number_after(folder + "memory.stat", "active_file");
      const uint64_t needed = *used - std::min(*used, files);
      available = std::min(available, *most - std::min(*most, needed));
    }
    if (path.empty()) return available;
  }
}

// Memory that can still be had: the machine's, or that of the control groups if it is less. Asking
// for more than that would not fail, but have the kernel kill somebody.
uint64_t available_bytes() {
  uint64_t available = UINT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available = std::stoull(line.substr(13)) * 1024;
  }
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/"))
      available = std::min(available, available_in_groups(line.substr(3)));
  }
  return available;
}

void require_room(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    throw no_room(bytes, fmt::format("files are limited to {} bytes", limit.rlim_cur),
                  "lift the limit with `ulimit -f unlimited`");
  }
  if (const uint64_t available = available_bytes(); bytes > available) {
    throw no_room(bytes, fmt::format("only {:.1f} MiB of memory are free", available / 1048576.0),
                  kHint);
  }
}

// Large segments lie in huge pages where the kernel can make them (Linux 6.1 and later, whatever it
// does for others): products and updates would else wait for the addresses of pages.
constexpr size_t kHugePage = size_t{2} << 20, kHugeFrom = 2 * kHugePage;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which is newer than the headers of Debian 12's libc
constexpr size_t kCollapsedAtOnce = 8 * kHugePage;
constexpr std::chrono::milliseconds kCollapseMost{300};

size_t whole_huge_pages(size_t bytes) {
  return bytes < kHugeFrom ? 0 : bytes / kHugePage * kHugePage;
}

Error not_mapped(size_t bytes, int error) {
  return no_room(bytes, fmt::format("it can't be mapped: {}", std::strerror(error)),
                 "lift the limit with `ulimit -v unlimited`, or use fewer workers");
}

// Addresses that nothing lies at, from a multiple of kHugePage on.
void* reserve_aligned(size_t bytes) {
  const size_t more = bytes + kHugePage;
  void* memory = mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw not_mapped(bytes, errno);
  auto* const begin = static_cast<std::byte*>(memory);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = before + (bytes + page - 1) / page * page;
  if (used < more) munmap(begin + used, more - used);
  return begin + before;
}

// Of what is there. Where memory lies in bits and pieces the kernel has to move it first, and
// workers that go on after a loss can't wait for that: small pages do, too.
void make_huge(std::byte* memory, size_t bytes) {
  const auto end = std::chrono::steady_clock::now() + kCollapseMost;
  for (size_t from = 0; from < bytes && std::chrono::steady_clock::now() < end;) {
    const size_t length = std::min(kCollapsedAtOnce, bytes - from);
    if (madvise(memory + from, length, kCollapse) != 0) return;
    from += length;
  }
}

void* map_fd(int fd, size_t bytes) {
  const size_t huge = whole_huge_pages(bytes);
  void* const at = huge > 0 ? reserve_aligned(bytes) : nullptr;
  void* memory =
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (at != nullptr) munmap(at, bytes);
    throw not_mapped(bytes, error);
  }
  make_huge(static_cast<std::byte*>(memory), huge);
  return memory;
}

void allocate(int fd, size_t from, size_t length, size_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(length));
  } while (error == EINTR);
  if (error != 0) throw no_room(bytes, std::strerror(error), kHint);
}

}  // namespace

void SharedSegment::map_all(size_t bytes) {
  bytes_ = {static_cast<std::byte*>(map_fd(fd_, bytes)), bytes};
}

SharedSegment SharedSegment::create(const std::string& name, size_t bytes) {
  require_room(bytes);
  const int fd = memfd_create(("starling-" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    throw no_room(bytes, fmt::format("no segment can be made: {}", std::strerror(errno)),
                  "raise the number of open files with `ulimit -n`");
  }
  SharedSegment segment(fd);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    throw no_room(bytes, std::strerror(errno), kHint);
  // The kernel makes huge pages, as it maps them, only where there is something.
  for (size_t from = 0; from < whole_huge_pages(bytes); from += kHugePage)
    allocate(fd, from, 1, bytes);
  segment.map_all(bytes);
  allocate(fd, 0, bytes, bytes);
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    throw run_error(fmt::format("a shared segment can't be sealed: {}", std::strerror(errno)),
                    "Starling needs Linux 5.10 or later");
  }
  return segment;
}

SharedSegment SharedSegment::map(int fd) {
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &status) != 0 || seals < 0 || (seals & kSeals) != kSeals || status.st_size <= 0) {
    throw run_error(fmt::format("descriptor {} is not a shared segment of this program", fd),
                    "start workers with `starling train --workers` or `starling launch`");
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) {
    throw run_error(fmt::format("no descriptor for a shared segment: {}", std::strerror(errno)),
                    "raise the number of open files with `ulimit -n`");
  }
  SharedSegment segment(own);
  segment.map_all(static_cast<size_t>(status.st_size));
  return segment;
}

SharedSegment::~SharedSegment() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void SharedSegment::keep_on_exec() const { fcntl(fd_, F_SETFD, 0); }

std::optional<size_t> SharedSegment::offset_of(const void* data, size_t length) const {
  const auto begin = reinterpret_cast<uintptr_t>(bytes_.data());
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (at < begin || length > bytes_.size() || at - begin > bytes_.size() - length) {
    return std::nullopt;
  }
  return at - begin;
}

}  // namespace starling
