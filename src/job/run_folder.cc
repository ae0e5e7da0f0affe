#include "job/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/atomic_file.h"
#include "cluster/request_socket.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  const bool empty = fs::is_empty(folder, error);
  if (error) {
    throw input_error(
        fmt::format("cannot read the folder {}: {}", folder.string(), error.message()),
        "choose another run folder with --run-dir");
  }
  return empty;
}

}  // namespace

RunFolder RunFolder::default_of(const Job& job) {
  const auto fits = [](char c) {
    return c != '/' && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
  };
  if (job.name.empty() || job.name[0] == '.' || job.name.size() > 200 ||
      !std::all_of(job.name.begin(), job.name.end(), fits)) {
    throw input_error(fmt::format("name = \"{}\" can't be the name of a folder", job.name),
                      "use letters, digits, - and _; or give a folder with --run-dir");
  }
  return RunFolder(fs::path("runs") / job.name);
}

void RunFolder::check(FolderUse use) const {
  std::error_code ignored;
  if (fs::exists(path_, ignored) && !fs::is_directory(path_, ignored)) {
    throw input_error(fmt::format("{} is a file, not a run folder", path_.string()),
                      "choose another folder with --run-dir");
  }
  if (!fs::is_directory(path_, ignored) || holds_nothing(path_)) return;
  if (use == FolderUse::kNew) {
    throw input_error(fmt::format("the run folder {} is not empty", path_.string()),
                      "go on with that run with --resume, replace it with --overwrite, or choose "
                      "another folder with --run-dir");
  }
  if (ask_run(path_, "status")) {
    throw input_error(
        fmt::format("a run is under way in {}", path_.string()),
        fmt::format("see `starling status {0}`, end it with `starling stop {0}`, or choose another "
                    "folder with --run-dir",
                    path_.string()));
  }
  if (use == FolderUse::kOverwrite && !fs::exists(job(), ignored)) {
    throw input_error(
        fmt::format("{} is not the folder of a run: it has no job.toml", path_.string()),
        "nothing was removed; choose another folder with --run-dir");
  }
}

void RunFolder::prepare(FolderUse use) const {
  // Without a checkpoint the run starts at the beginning, and what it noted before is void.
  if (use != FolderUse::kResume || !newest_checkpoint()) remove_run();
  make_folder(path_);
  remove_dead_temporaries(path_);
}

void RunFolder::remove_run() const {
  for (const fs::path& file : {report(), history(), curves(), log(), ledger(), record(),
                               record_aside(), best(), model(), checkpoints(), job()}) {
    std::error_code error;
    fs::remove_all(file, error);
    if (error) throw write_error(file, error.value());
  }
}

bool RunFolder::set_record_aside() const {
  std::error_code error;
  if (!fs::exists(record(), error)) return false;
  fs::rename(record(), record_aside(), error);
  if (error) throw write_error(record_aside(), error.value());
  return true;
}

std::optional<uint64_t> RunFolder::newest_checkpoint() const {
  constexpr std::string_view kPrefix = "step-";
  std::optional<uint64_t> newest;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    uint64_t steps = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), steps);
    newest = std::max(newest.value_or(0), steps);
  }
  return newest;
}

fs::path RunFolder::checkpoint(uint64_t steps) const {
  return checkpoints() / fmt::format("step-{:08}", steps);
}

}  // namespace starling
