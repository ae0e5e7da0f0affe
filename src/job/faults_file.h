// Reads a file of faults (docs/faults.md): TOML, a table [[fault]] for each.
#pragma once

#include <filesystem>

#include "cluster/faults.h"

namespace starling {

// From a file; or, where a number stands instead, a random plan with that seed. Throws input Error
// that says where and what is wrong.
std::vector<Fault> load_faults(const std::filesystem::path& path, int workers, bool apart = false);
std::vector<Fault> parse_faults(const std::string& text, const std::string& where);
// Something happens to all workers but one, in one of the first steps: the same for the same seed.
std::vector<Fault> random_faults(uint64_t seed, int workers, bool apart = false);

}  // namespace starling
