// Reads a file of faults (docs/faults.md): TOML, a table [[fault]] for each.
#pragma once

#include <filesystem>

#include "cluster/faults.h"

namespace starling {

// What a random plan is for.
struct FaultSubject {
  int workers = 1;
  bool apart = false;      // they train apart
  bool has_links = false;  // that may break
};

// From a file; or, where a number stands instead, a random plan with that seed. Throws input Error
// that says where and what is wrong.
std::vector<Fault> load_faults(const std::filesystem::path& path, const FaultSubject& subject);
std::vector<Fault> parse_faults(const std::string& text, const std::string& where);
// Something happens to all workers but one, in one of the first steps, and sometimes to the disk
// and to a checkpoint: the same for the same seed.
std::vector<Fault> random_faults(uint64_t seed, const FaultSubject& subject);
// As it stands in the file.
std::string_view name_of(Fault::Action action);

}  // namespace starling
