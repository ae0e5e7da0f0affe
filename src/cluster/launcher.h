// Launcher: starts the workers of a job on this host, passes on what they print, and waits for
// them.
//
// Worker 0, the chief, has the launcher's own output; each line of the others is written to
// standard error behind "[worker 2] ". SIGINT and SIGTERM to the launcher go to all workers as
// SIGTERM. When a worker dies, the others are told at once; those that have not ended after a few
// seconds are killed. Workers die with the launcher, however it dies, and the memory that they
// share has no name: nothing is left behind.
#pragma once

#include <string>
#include <vector>

#include "cluster/worker_place.h"

namespace starling {

struct LaunchOptions {
  std::vector<std::string> command;  // program and arguments
  int workers = 1;
  int lanes = 0;  // cores for each worker; 0: as many as there are for all
  FabricKind fabric = FabricKind::kShm;
};

// Blocks until all workers have ended. Returns the exit code of the first that failed (1 for one
// that was killed, after saying so), else the chief's. Throws Error when they can't be started.
int launch(const LaunchOptions& options);

}  // namespace starling
