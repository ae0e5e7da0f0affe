// Files that appear whole or not at all. A file is written under a temporary name in its own
// folder, flushed to the disk, renamed, and the folder is flushed: after a crash, a kill or a full
// disk the final name holds the old content or the new one, never a part of it.
//
// A failed write removes its temporary and throws Error with what to do: for what the user gave (a
// folder that is missing, read-only or forbidden) an input error, otherwise (a full disk) a run
// error. An AtomicFile belongs to one thread; different files may be written at the same time, the
// same one too (the last commit wins).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "starling/error.h"

namespace starling {

// Adds a line to the end of a file; on a full disk it may be a part of it.
void append_line(const std::filesystem::path& path, std::string_view line);

// From now on no file can be written, as on a full disk: for faults on purpose.
void pretend_full_disk(bool full);

// How the names of what is not complete begin.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

class AtomicFile {
 public:
  // Opens the temporary. `expected_bytes` is used to say how much space a full disk lacks.
  explicit AtomicFile(std::filesystem::path path, uint64_t expected_bytes = 0);
  // Removes the temporary unless commit() has succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Flushes and gives the file its final name; nothing may be written after it.
  void commit();

  uint64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(int error_number);
  void discard();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  uint64_t expected_bytes_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes what writers that died have left in a folder: temporary files, and folders that are named
// so. Nobody else may be writing there. What can't be removed stays, without harm.
void remove_dead_temporaries(const std::filesystem::path& folder);

// Makes the folder and its parents; no error when it is there already.
void make_folder(const std::filesystem::path& path);

// Flushes the entries of a folder (names made, renamed or removed in it) to the disk.
void sync_folder(const std::filesystem::path& path);

// The error of a write to `path` that failed with `error_number`, with a hint for a person.
// `bytes_needed` is the size of what was to be written, 0 when unknown.
Error write_error(const std::filesystem::path& path, int error_number, uint64_t bytes_needed = 0);

}  // namespace starling
