#include "job/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "base/atomic_file.h"
#include "cluster/request_socket.h"
#include "starling/error.h"
#include "starling/trainer.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// How the job.toml of a run begins.
constexpr std::string_view kJobMark = "# The job as Starling ";

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

Error is_under_way(const fs::path& folder) {
  return input_error(
      fmt::format("a run is under way in {}", folder.string()),
      fmt::format("see `starling status {0}`, end it with `starling stop {0}`, or choose another "
                  "folder with --run-dir",
                  folder.string()));
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
  if (ask_run(path_, "status")) throw is_under_way(path_);
  if (use == FolderUse::kResume) check_resumable();
  if (use == FolderUse::kOverwrite && !holds_run()) {
    throw input_error(
        fmt::format("{} is not the folder of a run: it has no job.toml of one", path_.string()),
        "nothing was removed; choose another folder with --run-dir");
  }
}

// Whether its job.toml is that of a run, and not a user's.
bool RunFolder::holds_run() const {
  std::ifstream stream(job());
  std::string line;
  return std::getline(stream, line) && line.starts_with(kJobMark);
}

// Without a checkpoint the run starts at the beginning, and what is there is removed: that may be
// what a run had noted that was lost early, its best weights among it, but no results, and nothing
// that is somebody else's.
void RunFolder::check_resumable() const {
  if (newest_checkpoint()) return;
  const auto is_there = [](const fs::path& file) {
    std::error_code ignored;
    return fs::exists(file, ignored);
  };
  if (is_there(model()) || is_there(report())) {
    throw input_error(
        fmt::format("{} has no checkpoint to go on from, but results", path_.string()),
        "nothing was removed; replace them with --overwrite, or choose another folder with "
        "--run-dir");
  }
  const std::vector<fs::path> all = files();
  if (holds_run() || std::none_of(all.begin(), all.end(), is_there)) return;
  throw input_error(
      fmt::format("{} is not the folder of a run: it has no job.toml of one", path_.string()),
      "nothing was removed; choose another folder with --run-dir");
}

void RunFolder::lock() {
  lock_.emplace(path_);
  if (!lock_->is_taken()) return;
  lock_.reset();
  throw is_under_way(path_);
}

void RunFolder::take(FolderUse use) {
  if (!lock_) {
    make_folder(path_);
    lock();
    check(use);  // another may have had it since it was checked
  }
  if (use != FolderUse::kResume || !newest_checkpoint()) remove_run();
  remove_dead_temporaries(path_);
}

void RunFolder::take_over() {
  if (lock_) return;
  lock_.emplace(path_);
  if (lock_->is_taken()) lock_.reset();  // who is lost has not ended yet
}

void RunFolder::write_job(const Job& of) const {
  write_file_atomically(job(),
                        fmt::format("{}{} ran it.\n{}", kJobMark, version(), job_to_toml(of)));
}

// The job is the last one to be removed: by it the others are known as a run's.
std::vector<fs::path> RunFolder::files() const {
  return {report(),       history(), curves(), log(),         ledger(), record(),
          record_aside(), best(),    model(),  checkpoints(), job()};
}

void RunFolder::remove_run() const {
  for (const fs::path& file : files()) {
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
