#include "train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

#include "base/atomic_file.h"
#include "base/folder_lock.h"
#include "train/checkpoint_folder.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSupersededPrefix = "superseded-";

struct Found {
  uint64_t step;
  fs::path path;
};

std::optional<uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// The checkpoints of a folder, newest first; none when there is no folder.
std::vector<Found> find_checkpoints(const fs::path& folder) {
  std::vector<Found> found;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (const auto step = step_of(entries->path().filename().string())) {
      found.push_back({*step, entries->path()});
    }
  }
  if (error) {
    throw input_error(fmt::format("cannot read {}: {}", folder.string(), error.message()),
                      "give a folder of checkpoints that you may read");
  }
  // Of two spellings of one step the shorter is the newer (see publish).
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    if (a.step != b.step) return a.step > b.step;
    const size_t a_size = a.path.native().size(), b_size = b.path.native().size();
    return a_size != b_size ? a_size < b_size : a.path < b.path;
  });
  return found;
}

// Removing what is not needed any more may fail without harm: the next save tries again.
void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// A checkpoint goes in one rename, so that no reader sees it half removed.
void retire(const fs::path& path) {
  const fs::path hidden =
      path.parent_path() / fmt::format("{}{}", kTemporaryPrefix, path.filename().string());
  remove_quietly(hidden);
  std::error_code error;
  fs::rename(path, hidden, error);
  remove_quietly(error ? path : hidden);
}

// Gives the finished folder its name. One that is there already (damaged, or of an earlier run) is
// swapped in one step with the new one. Where the file system cannot swap, as NFS, it is moved away
// first, to another spelling of its step: in between, it is the one to load.
void publish(const fs::path& temporary, const fs::path& folder, uint64_t step) {
  const fs::path final_path = folder / fmt::format("{}{:08}", kPrefix, step);
  const fs::path old = folder / fmt::format("{}0{:08}", kPrefix, step);
  if (rename(temporary.c_str(), final_path.c_str()) == 0) return retire(old);
  if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
    throw write_error(final_path, errno);
  }
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) {
    remove_quietly(temporary);
    return;
  }
  retire(old);
  if (rename(final_path.c_str(), old.c_str()) != 0 ||
      rename(temporary.c_str(), final_path.c_str()) != 0) {
    throw write_error(final_path, errno);
  }
  retire(old);
}

void apply_retention(const fs::path& folder, uint64_t saved_step, int keep) {
  int kept = 0;
  for (const Found& found : find_checkpoints(folder)) {
    if (found.step > saved_step) {
      const fs::path aside =
          folder / fmt::format("{}{}", kSupersededPrefix, found.path.filename().string());
      remove_quietly(aside);
      std::error_code ignored;
      fs::rename(found.path, aside, ignored);
    } else if (++kept > keep) {
      retire(found.path);
    }
  }
}

std::optional<uint64_t> step_of(const Snapshot& snapshot) {
  const auto step = snapshot.manifest.find("step");
  // A count that was put in as a signed number is fine too.
  if (step == snapshot.manifest.end() || !step->is_number_integer() ||
      (!step->is_number_unsigned() && step->get<int64_t>() < 0)) {
    return std::nullopt;
  }
  return step->get<uint64_t>();
}

void save_checkpoint(const Snapshot& snapshot, const fs::path& folder, int keep) {
  const std::optional<uint64_t> own_step = step_of(snapshot);
  if (!own_step) {
    throw run_error("a checkpoint without its step cannot be saved",
                    "set \"step\" in the manifest of the snapshot");
  }
  const uint64_t step = *own_step;
  make_folder(folder);
  const FolderLock lock(folder);
  if (lock.is_taken()) {
    throw run_error(
        fmt::format("another process is saving a checkpoint in {} just now", folder.string()),
        "give each run a folder of its own");
  }
  // Every temporary folder belongs to a writer that died. Without locks nobody knows.
  if (lock.is_held()) remove_dead_temporaries(folder);
  const fs::path temporary =
      folder / fmt::format("{}{}{:08}-{}", kTemporaryPrefix, kPrefix, step, getpid());
  try {
    make_folder(temporary);
    write_checkpoint_files(snapshot, temporary);
    publish(temporary, folder, step);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sync_folder(folder);
  apply_retention(folder, step, keep);
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, CheckpointOptions options)
    : folder_(std::move(folder)), options_(options) {
  if (options_.keep < 1) {
    throw input_error(fmt::format("{} checkpoints cannot be kept", options_.keep),
                      "keep at least 1");
  }
}

CheckpointStore::~CheckpointStore() { wait(); }

void CheckpointStore::save(Snapshot snapshot) {
  wait();
  try {
    writer_ = std::thread([this, moved = std::move(snapshot)] { save_now(moved); });
  } catch (const std::system_error& error) {
    note_failure(fmt::format("a checkpoint could not be saved: no thread: {}", error.what()));
  }
}

void CheckpointStore::wait() const {
  if (writer_.joinable()) writer_.join();
}

void CheckpointStore::save_now(const Snapshot& snapshot) noexcept {
  try {
    save_checkpoint(snapshot, folder_, options_.keep);
  } catch (const Error& error) {
    note_failure(
        fmt::format("a checkpoint could not be saved: {} (hint: {})", error.what(), error.hint()));
  } catch (const std::exception& error) {
    note_failure(fmt::format("a checkpoint could not be saved: {}", error.what()));
  }
}

void CheckpointStore::note_failure(std::string failure) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(std::move(failure));
}

std::optional<std::string> CheckpointStore::failure() {
  const std::lock_guard lock(mutex_);
  if (failures_.empty()) return std::nullopt;
  std::string oldest = std::move(failures_.front());
  failures_.erase(failures_.begin());
  return oldest;
}

std::optional<CheckpointStore::Loaded> CheckpointStore::load_latest() const {
  wait();
  std::vector<std::string> skipped;
  for (const Found& found : find_checkpoints(folder_)) {
    try {
      Loaded loaded = load(found.path);
      loaded.skipped = std::move(skipped);
      return loaded;
    } catch (const Error& error) {
      skipped.push_back(error.what());
    }
  }
  if (skipped.empty()) return std::nullopt;
  throw input_error(fmt::format("every checkpoint in {} is damaged: {}", folder_.string(),
                                fmt::join(skipped, "; ")),
                    "move that folder away to start from the beginning");
}

CheckpointStore::Loaded CheckpointStore::load(const fs::path& path) {
  Loaded loaded{read_checkpoint_files(path), path, {}};
  // Whole, but perhaps moved here from another step, as a whole or with its manifest.
  const std::optional<uint64_t> named = step_of(path.filename().string());
  const std::optional<uint64_t> saved = step_of(loaded.snapshot);
  if (named && named != saved) {
    throw input_error(fmt::format("{}: {}", path.string(),
                                  saved ? fmt::format("this is the checkpoint of step {}", *saved)
                                        : "the manifest does not say its step"),
                      "its files were exchanged with those of another: use an earlier one");
  }
  return loaded;
}

bool damage_newest_checkpoint(const fs::path& folder) {
  const std::vector<Found> found = find_checkpoints(folder);
  if (found.empty()) return false;
  const fs::path path = found.front().path / "weights.safetensors";
  std::error_code error;
  const uint64_t middle = fs::file_size(path, error) / 2;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(middle));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(middle));
  file.put(static_cast<char>(byte ^ 1));
  return true;
}

}  // namespace starling
