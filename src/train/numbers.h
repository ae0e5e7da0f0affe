// The numeric fingerprint of this process: what bits depend on beside the job. Processes in which
// all of it is the same compute the same bits. From the first call on, the instruction set can't be
// capped any more (base/isa.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace starling {

// Each with its name: version, isa, onednn (its version, and the instruction set that it uses), and
// bf16 (how dense layers multiply it: "rounded", "pairs" or "tiles").
std::vector<std::pair<std::string, std::string>> numbers();

// All of it on one line, for people.
std::string numbers_text();

// For a checkpoint.
Json numbers_json();

// What is not as it was when `saved` was made: "isa was avx2 and is avx512"; empty if all is.
std::string numbers_changed(const Json& saved);

}  // namespace starling
