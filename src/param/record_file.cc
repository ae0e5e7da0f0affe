#include "param/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr size_t kBytesMost = size_t{4} << 30;

// Flushed to the disk.
void append_text(const std::filesystem::path& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) throw write_error(path, errno, text.size());
  int failure = 0;
  while (!text.empty() && failure == 0) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      failure = errno;
    }
  }
  if (failure == 0 && fdatasync(file) != 0) failure = errno;
  close(file);
  if (failure != 0) throw write_error(path, failure, text.size());
}

}  // namespace

void RecordFile::go_on_after(uint64_t version) {
  version_.reset();
  std::error_code none;
  const bool is_there = std::filesystem::exists(path_, none);
  if (version == 0) {
    write_file_atomically(path_, record_header());
  } else if (!is_there) {
    throw input_error(fmt::format("the run has made {} updates that were not recorded", version),
                      "leave --record away, or start anew with --overwrite");
  } else {
    const std::string text = read_text(path_, kBytesMost);
    RecordReader reader(text, path_.string());
    uint64_t reached = 0;
    while (reached < version && !reader.is_over()) {
      const RecordedStretch stretch = reader.next();
      if (stretch.version != reached) break;
      reached = stretch.end_version();
    }
    if (reached != version) {
      throw input_error(fmt::format("{} goes to update {}, but the run is at update {}",
                                    path_.string(), reached, version),
                        "leave --record away, or start anew with --overwrite");
    }
    std::error_code failure;
    if (!reader.is_over()) std::filesystem::resize_file(path_, reader.position(), failure);
    if (failure) throw write_error(path_, failure.value());
  }
  version_ = version;
}

void RecordFile::append(const RecordedStretch& stretch) {
  if (version_ != stretch.version) go_on_after(stretch.version);
  version_.reset();
  append_text(path_, to_text(stretch));
  version_ = stretch.end_version();
}

std::vector<RecordedStretch> RecordFile::read(const std::filesystem::path& path) {
  const std::string text = read_text(path, kBytesMost);
  std::vector<RecordedStretch> all;
  uint64_t version = 0;
  for (RecordReader reader(text, path.string()); !reader.is_over();) {
    all.push_back(reader.next());
    if (all.back().version != version) {
      throw input_error(fmt::format("{} lacks what was done between updates {} and {}",
                                    path.string(), version, all.back().version),
                        "copy it again from where it was written, or run with --record once more");
    }
    version = all.back().end_version();
  }
  return all;
}

}  // namespace starling
