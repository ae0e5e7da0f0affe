// Reads a file of faults (docs/faults.md): TOML, a table [[fault]] for each.
#pragma once

#include <filesystem>

#include "cluster/faults.h"

namespace starling {

// Throws input Error that says where and what is wrong.
std::vector<Fault> load_faults(const std::filesystem::path& path);
std::vector<Fault> parse_faults(const std::string& text, const std::string& where);

}  // namespace starling
