// RecordFile: the record of a run (record.h), stretch by stretch as they end, by whoever is the
// chief then. What was written must follow on what is there: whatever a chief that was lost, or a
// run that is resumed from an earlier state, had written after that is cut off first. A stretch is
// on the disk when append() returns, so that no checkpoint is ahead of the record.
//
// One thread; one process at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "param/record.h"

namespace starling {

class RecordFile {
 public:
  explicit RecordFile(std::filesystem::path path) : path_(std::move(path)) {}

  // The run is at the state after `version` updates: what the file has beyond it is cut off. After
  // none it begins anew. Throws input Error when the file does not reach that state.
  void go_on_after(uint64_t version);
  // Throws Error when it can't be written.
  void append(const RecordedStretch& stretch);

  // All of it; each stretch follows on the one before. Throws input Error.
  static std::vector<RecordedStretch> read(const std::filesystem::path& path);

 private:
  const std::filesystem::path path_;
  std::optional<uint64_t> version_;  // where it ends, if this process has made it so
};

}  // namespace starling
