// Core plan: which processors each worker of a host is kept on. Neighbouring cores for the lanes of
// one worker, and others for the next, so that no two share one; two hardware threads of a core are
// used only when there are more lanes than cores. Pure but for available_cpus().
#pragma once

#include <vector>

namespace starling {

// A processor as the system counts them; those with the same core are hardware threads of it.
struct Cpu {
  int number = 0;
  int core = 0;

  friend bool operator==(const Cpu&, const Cpu&) = default;
};

// Those that this process may use.
std::vector<Cpu> available_cpus();

// The numbers of worker `rank`'s processors, one for each lane (0 lanes: its share of all). Empty
// when there are too few for all workers: then each may use all.
std::vector<int> place_worker(const std::vector<Cpu>& cpus, int workers, int lanes, int rank);

}  // namespace starling
