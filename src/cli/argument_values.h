// Values of flags, from the words that were typed. Throws Error for what makes no sense, naming the
// flag.
#pragma once

#include <string>

#include "cli/arguments.h"

namespace starling {

// What is wrong with a number of the job; empty: nothing.
std::string problem_of_whole_number(const std::string& text);

// --time, in seconds: "90s", "5min", "1.5h".
double parse_time(const std::string& text);

// One of --sizes, of what is summed, in bytes: "8B", "1KiB", "128MiB".
size_t parse_size(const std::string& text);

// --samples: "0:10".
Arguments::SampleRange parse_range(const std::string& text);

}  // namespace starling
