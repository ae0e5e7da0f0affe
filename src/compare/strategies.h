// The strategies of a comparison, and how they are named on the command line:
//   all_reduce,local_sgd:period=16/64:nesterov,parameter_server:async
// A comma between strategies, a colon before each setting, a slash between the values that are all
// tried. A key is a field of [strategy]; a value that is a word needs no key. Nothing in it means
// anything to a shell. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"

namespace starling {

struct ComparedStrategy {
  std::string name;               // strategy.name of the job
  std::vector<Setting> settings;  // other fields of [strategy], without "strategy."

  // "local_sgd period=64 nesterov": words stand for themselves.
  std::string label() const;
  // The same as the name of a folder.
  std::string slug() const;
};

// What `all` means: every strategy there is, as one would try it first.
const std::vector<ComparedStrategy>& all_strategies();

// In the order in which they are named, each once. Throws input Error.
std::vector<ComparedStrategy> parse_strategies(const std::string& text);

}  // namespace starling
