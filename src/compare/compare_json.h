// compare.json: the summary for programs. docs/compare.md documents the fields; their names are an
// interface. Pure.
#pragma once

#include <string>

#include "compare/summary.h"

namespace starling {

// Figures that are not there are null.
std::string summary_to_json(const Summary& summary);

}  // namespace starling
