// RunFolder: the files of one run, and when a folder may be used for one. What a run wrote is
// never removed unless the user asks for it, and then only files that a run writes.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/folder_lock.h"
#include "job/job.h"

namespace starling {

enum class FolderUse {
  kNew,        // a folder that is absent or empty
  kResume,     // goes on with what is there
  kOverwrite,  // what a run before left is removed
};

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // runs/<name>. Throws input Error when the name can't be a folder's.
  static RunFolder default_of(const Job& job);

  // Throws Error when the folder can't be used so. Touches nothing.
  void check(FolderUse use) const;
  // Makes the folder ready, and keeps other runs out while this object lives; may be called again
  // when it did not come to an end. Throws Error when the folder can't be used so, or not written.
  void take(FolderUse use);
  // Keeps other runs out for one that had the folder and is lost.
  void take_over();
  // As it is kept beside results, so that it is known as that of a run.
  void write_job(const Job& job) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path job() const { return path_ / "job.toml"; }
  std::filesystem::path report() const { return path_ / "report.json"; }
  std::filesystem::path history() const { return path_ / "history.csv"; }
  std::filesystem::path curves() const { return path_ / "curves.svg"; }
  std::filesystem::path log() const { return path_ / "log.txt"; }
  std::filesystem::path ledger() const { return path_ / "ledger.jsonl"; }
  std::filesystem::path record() const { return path_ / "record.txt"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

  // What a run that is no longer recorded has left; returns whether there was such a file.
  bool set_record_aside() const;

  // How many steps the newest checkpoint has, damaged or not.
  std::optional<uint64_t> newest_checkpoint() const;
  // The folder of the checkpoint after `steps` steps.
  std::filesystem::path checkpoint(uint64_t steps) const;

 private:
  bool holds_run() const;
  void check_resumable() const;
  void lock();
  std::vector<std::filesystem::path> files() const;
  void remove_run() const;
  std::filesystem::path record_aside() const { return path_ / "superseded-record.txt"; }

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

}  // namespace starling
