// CompareFolder: the files of one comparison, and when a folder may be used for one. What is there
// is never removed unless the user asks for it, and then only what a comparison writes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_lock.h"
#include "compare/plan.h"
#include "compare/trial_result.h"

namespace starling {

class CompareFolder {
 public:
  explicit CompareFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // Makes the folder ready for trials of this plan, and keeps other comparisons out while this
  // object lives. Throws Error when it holds something else.
  void take(const ComparePlan& plan, bool overwrite);

  // What came of the trial, if it was done with these settings.
  TrialOutcome outcome_of(const ComparePlan& plan, const Trial& trial) const;
  // Of a trial that is under way: the epochs that it has behind it.
  std::vector<TrialPoint> points_of(const ComparePlan& plan, const Trial& trial) const;
  // Makes place for the trial, and returns the command that runs it.
  std::vector<std::string> command_of(const ComparePlan& plan, const Trial& trial,
                                      const std::string& program) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path json() const { return path_ / "compare.json"; }
  std::filesystem::path page() const { return path_ / "compare.html"; }
  std::filesystem::path log_of(const ComparePlan& plan, const Trial& trial) const;

 private:
  std::filesystem::path job() const { return path_ / "job.toml"; }
  std::filesystem::path runs() const { return path_ / "runs"; }
  std::filesystem::path file_of(const ComparePlan& plan, const Trial& trial,
                                const char* ending) const;
  void lock();
  void remove_comparison() const;

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

}  // namespace starling
