#include "compare/compare_folder.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/read_file.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxKeptBytes = size_t{16} << 20;
// How job.toml begins in the folder of a comparison.
constexpr std::string_view kMark = "# A comparison by Starling ";

// Nothing when it can't be read.
std::optional<std::string> text_of(const fs::path& path) {
  try {
    return read_text(path, kMaxKeptBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What trials have in common, as it is kept. Where seeds begin is not part of it; how many samples
// there are is, as files may be other ones by now.
std::string common_text(const ComparePlan& plan) {
  Job job = plan.job;
  job.seed = 1;
  return fmt::format("{}{}: what its trials have in common.\n# {}.\n{}", kMark, STARLING_VERSION,
                     plan.data, job_to_toml(job));
}

// What makes a trial this one, beside the common job.
std::string identity_of(const ComparePlan& plan, const Trial& trial) {
  OrderedJson json;
  for (const auto& [key, value] : plan.trial_settings(trial)) json["settings"][key] = value;
  json["faults"] = plan.entries[trial.entry].faults;
  return to_text(json, 2) + "\n";
}

void remove_whole(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw write_error(path, error.value());
}

}  // namespace

void CompareFolder::take(const ComparePlan& plan, bool overwrite) {
  std::error_code ignored;
  if (fs::exists(path_, ignored) && !fs::is_directory(path_, ignored))
    throw input_error(fmt::format("{} is a file, not a folder", path_.string()),
                      "choose another folder with --out");
  const std::optional<std::string> before = text_of(job());
  const bool is_ours = before && before->starts_with(kMark);
  if (fs::is_directory(path_, ignored) && !fs::is_empty(path_, ignored) && !is_ours)
    throw input_error(fmt::format("{} holds something else than a comparison", path_.string()),
                      "choose another folder with --out");
  make_folder(path_);
  lock();
  const std::string text = common_text(plan);
  if (is_ours && *before != text && !overwrite)
    throw input_error(fmt::format("{} holds a comparison of another job, budget, data or version",
                                  path_.string()),
                      "replace it with --overwrite, or choose another folder with --out");
  if (is_ours && overwrite) remove_comparison();
  if (!is_ours || overwrite || *before != text) write_file_atomically(job(), text);
}

void CompareFolder::lock() {
  lock_.emplace(path_);
  if (!lock_->is_taken()) return;
  throw input_error(fmt::format("a comparison is under way in {}", path_.string()),
                    "wait for its end, or choose another folder with --out");
}

void CompareFolder::remove_comparison() const {
  for (const fs::path& file : {runs(), json(), page(), job()}) remove_whole(file);
}

fs::path CompareFolder::file_of(const ComparePlan& plan, const Trial& trial,
                                const char* ending) const {
  return path_ / (plan.trial_folder(trial) + ending);
}

fs::path CompareFolder::log_of(const ComparePlan& plan, const Trial& trial) const {
  return file_of(plan, trial, ".log");
}

TrialOutcome CompareFolder::outcome_of(const ComparePlan& plan, const Trial& trial) const {
  if (text_of(file_of(plan, trial, ".json")) != identity_of(plan, trial)) return {};
  return read_trial(file_of(plan, trial, ""),
                    {.workers = plan.workers_of(trial), .seconds = plan.job.training.time_limit});
}

std::vector<TrialPoint> CompareFolder::points_of(const ComparePlan& plan,
                                                 const Trial& trial) const {
  return parse_points(text_of(file_of(plan, trial, "") / "history.csv").value_or(""));
}

std::vector<std::string> CompareFolder::command_of(const ComparePlan& plan, const Trial& trial,
                                                   const std::string& program) const {
  const fs::path run = file_of(plan, trial, ""), faults = file_of(plan, trial, ".faults.toml");
  make_folder(run.parent_path());
  remove_whole(run);
  write_file_atomically(file_of(plan, trial, ".json"), identity_of(plan, trial));
  std::vector<std::string> command = {program,     "train",      job().string(),
                                      "--run-dir", run.string(), "--no-progress"};
  for (const auto& [key, value] : plan.trial_settings(trial)) {
    command.emplace_back("--set");
    command.push_back(fmt::format("{}={}", key, value));
  }
  if (const std::string& text = plan.entries[trial.entry].faults; !text.empty()) {
    write_file_atomically(faults, text);
    command.insert(command.end(), {"--faults", faults.string()});
  }
  return command;
}

}  // namespace starling
