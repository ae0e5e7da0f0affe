#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

namespace starling {
namespace {

std::atomic<bool> disk_is_full{false};

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// Opens a new file beside `path` under a name that no other writer uses.
int open_temporary(const std::filesystem::path& path, std::filesystem::path& temporary) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 100;  // names of killed writers with our process id may be in the way
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    temporary =
        folder_of(path) / fmt::format("{}{}-{}-{}", kTemporaryPrefix, path.filename().string(),
                                      getpid(), counter.fetch_add(1));
    const int descriptor =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  errno = EEXIST;
  return -1;
}

std::string space_report(const std::filesystem::path& folder, uint64_t bytes_needed) {
  std::string text;
  if (bytes_needed > 0) text = fmt::format("{} bytes are needed", bytes_needed);
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) == 0) {
    text += fmt::format("{}{} bytes are free", text.empty() ? "" : ", ",
                        static_cast<uint64_t>(space.f_bavail) * space.f_frsize);
  }
  return text;
}

}  // namespace

Error write_error(const std::filesystem::path& path, int error_number, uint64_t bytes_needed) {
  const std::string folder = folder_of(path).string();
  std::string message = fmt::format("cannot write {}: {}", path.string(),
                                    std::generic_category().message(error_number));
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: {
      const std::string space = space_report(folder, bytes_needed);
      if (!space.empty()) message += fmt::format(" ({})", space);
      return run_error(message, fmt::format("free some space on the disk that holds {}, or choose "
                                            "a folder on another disk",
                                            folder));
    }
    case EROFS:
      return input_error(message, fmt::format("the file system that holds {} is read-only: choose "
                                              "another folder",
                                              folder));
    case EACCES:
    case EPERM:
      return input_error(message, fmt::format("choose a folder that you may write to, or ask for "
                                              "write permission on {}",
                                              folder));
    case ENOENT:
      return input_error(message, fmt::format("make the folder {} first", folder));
    case ENOTDIR:
    case EEXIST:
      return input_error(message, fmt::format("a part of the path {} is a file, not a folder: "
                                              "choose another folder",
                                              folder));
    case EISDIR:
      return input_error(message, "a folder has that name: choose another name");
    case ENAMETOOLONG:
      return input_error(message, "choose a shorter name");
    default:
      return run_error(message, fmt::format("check the disk that holds {}", folder));
  }
}

AtomicFile::AtomicFile(std::filesystem::path path, uint64_t expected_bytes)
    : path_(std::move(path)), expected_bytes_(expected_bytes) {
  descriptor_ = open_temporary(path_, temporary_);
  if (descriptor_ < 0) throw write_error(path_, errno, expected_bytes_);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(int error_number) {
  const uint64_t needed = std::max(expected_bytes_, bytes_);
  discard();  // first, so that the free space in the message is what there will be
  throw write_error(path_, error_number, needed);
}

void pretend_full_disk(bool full) { disk_is_full = full; }

void append_line(const std::filesystem::path& path, std::string_view line) {
  if (disk_is_full.load(std::memory_order_relaxed)) throw write_error(path, ENOSPC, line.size());
  std::ofstream file(path, std::ios::app);
  file << line << '\n';
  file.flush();
  if (!file) throw write_error(path, errno, line.size());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) throw run_error("a write to the closed file " + path_.string(), "report it");
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (disk_is_full.load(std::memory_order_relaxed)) fail(ENOSPC);
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw run_error("a second commit of " + path_.string(), "report it");
  if (fsync(descriptor_) != 0) fail(errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) fail(errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
  sync_folder(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path, bytes.size());
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void remove_dead_temporaries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> dead;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kTemporaryPrefix))
      dead.push_back(entry->path());
  }
  for (const std::filesystem::path& path : dead) std::filesystem::remove_all(path, error);
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw write_error(path, error.value());
  // create_directories is content with any existing name on some library versions.
  if (!std::filesystem::is_directory(path, error)) throw write_error(path / ".", ENOTDIR);
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw write_error(path, errno);
  const int result = fsync(descriptor);
  const int error_number = errno;
  close(descriptor);
  // EINVAL: a file system that cannot flush folders, which then has nothing to flush.
  if (result != 0 && error_number != EINVAL) throw write_error(path, error_number);
}

}  // namespace starling
