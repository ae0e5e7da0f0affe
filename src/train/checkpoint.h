// Checkpoints: the state of a run as folders `step-00001234/` that exist whole or not at all.
//   weights.safetensors, optimizer.safetensors, statistics.safetensors (when there are any)
//   manifest.json: format version, what the caller wants kept, size and SHA-256 of each file, and
//                  a SHA-256 of itself
// A checkpoint is made in a hidden folder `.tmp-…`, flushed, and renamed at the end. Reading checks
// every size and hash, and that the folder has the name of the step in it: a damaged checkpoint is
// never loaded, the one before it is.
//
// A CheckpointStore is used by one thread; it writes on a thread of its own, one checkpoint at a
// time. Several processes may read a folder while one writes to it; a second writer is refused for
// as long as the first is saving.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "train/safetensors.h"

namespace starling {

// What a checkpoint holds.
struct Snapshot {
  using Tensor = NamedTensor;

  std::vector<Tensor> weights;
  std::vector<Tensor> optimizer;   // named "<parameter>/<state>"
  std::vector<Tensor> statistics;  // running statistics of normalisation
  // The caller's own: seed, cursor, history, …; "step" is required, a whole number ≥ 0. Texts are
  // UTF-8, and numbers finite (JSON knows no others: they come back as null).
  Json manifest = Json::object();
};

struct CheckpointOptions {
  int keep = 3;  // how many of the newest stay; at least 1
};

class CheckpointStore {
 public:
  struct Loaded {
    Snapshot snapshot;
    std::filesystem::path path;
    std::vector<std::string> skipped;  // damaged newer ones, each with the reason
  };

  // Nothing is made or removed on the disk before the first save.
  explicit CheckpointStore(std::filesystem::path folder, CheckpointOptions options = {});
  // Waits for the save under way.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Saves in the background, after waiting for the save before it. When the new checkpoint is
  // complete, checkpoints beyond the newest `keep` are removed, and those of a later step (of a
  // run that was resumed from an earlier one) are set aside as `superseded-step-…`: a resume goes
  // on from what was saved last.
  void save(Snapshot snapshot);

  // Waits until nothing is being saved.
  void wait() const;

  // Why a save failed (a full disk, for instance), with its hint; each failure is given once.
  // It never ends the run: what was saved before is still there.
  std::optional<std::string> failure();

  // The newest checkpoint that is whole; nothing when there is none at all. Throws input Error when
  // there are checkpoints and all are damaged.
  std::optional<Loaded> load_latest() const;

  // One checkpoint; throws input Error when it is damaged.
  static Loaded load(const std::filesystem::path& path);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void save_now(const Snapshot& snapshot) noexcept;
  void note_failure(std::string failure);

  std::filesystem::path folder_;
  CheckpointOptions options_;
  mutable std::thread writer_;
  std::mutex mutex_;                   // guards failures_
  std::vector<std::string> failures_;  // not yet given, oldest first
};

// Flips a byte of the newest checkpoint in the folder: for faults on purpose. False if there is
// none.
bool damage_newest_checkpoint(const std::filesystem::path& folder);

}  // namespace starling
