// Recovery: how a world went on without workers that it lost, or with others (World::reform).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace starling {

struct Recovery {
  struct Loss {
    int worker;
    // Seconds from the loss to the launcher's noticing it, if the loss was planned.
    std::optional<double> detection;
    double resumption;  // from that to the new view
  };
  std::vector<Loss> lost;
  std::vector<int> joined, retired, left;  // by name; those that are left go on
  std::string news;                        // how they were lost
  std::string operation;                   // what this worker was doing
  bool redone = false;                     // the unit is; else completed
  double work_lost = 0;                    // seconds of this worker in what is redone
  double seconds = 0;                      // from this worker's failure to the new view
};

}  // namespace starling
