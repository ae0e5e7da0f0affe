// A summary as it is told on the terminal: a table for each condition, and what to use. Pure.
#pragma once

#include <string>

#include "compare/summary.h"

namespace starling {

std::string summary_to_text(const Summary& summary);

// Beside a recommendation, so that its colour does not say it alone.
std::string sure_text(bool sure);

}  // namespace starling
