// The catalogue of data sets that Starling knows by name: their files, how to tell that they are
// right, and where to get them. Checksums are of the unpacked bytes, so that a file may be placed
// raw or gzipped, however it was packed. Opening checks sizes and shapes; verify() checks every
// byte.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "starling/data.h"

namespace starling::data {

struct CatalogFile {
  std::string_view name;  // without ".gz"
  uint64_t bytes;         // unpacked
  std::string_view sha256;
};

// Either the Debian or the npm fields are empty.
struct CatalogEntry {
  std::string_view name;
  std::string_view title;
  std::string_view debian_package;
  std::string_view debian_folder;  // where the package puts the files
  std::string_view npm_package;    // has the files in its folder `data`
  std::string_view npm_version;
  std::array<CatalogFile, 4> files;  // features and labels to train, features and labels to test
};

// All of them.
std::span<const CatalogEntry> catalog();

// Throws Error that names the known ones when there is no such data set.
const CatalogEntry& find_entry(std::string_view name);

// The folder that holds all files of the data set: its package's, or the one in the cache.
std::optional<std::filesystem::path> locate(const CatalogEntry& entry);

// Opens a data set in `folder`, or where locate() finds it when that is empty. Throws Error that
// says how to get it.
TrainTest open(const CatalogEntry& entry, const std::filesystem::path& folder);

// Throws Error that names the first file in `folder` that is absent or not the known one.
void verify(const CatalogEntry& entry, const std::filesystem::path& folder);

// Where files that are placed by hand belong: their names and the folder.
std::string by_hand_hint(const CatalogEntry& entry);

}  // namespace starling::data
