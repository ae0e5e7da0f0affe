// Launcher: starts the workers of a job on this host, passes on what they print, and waits for
// them.
//
// Worker 0, the chief, has the launcher's own output; each line of the others is written to
// standard error behind "[worker 2] ". SIGINT and SIGTERM to the launcher go to all workers as
// SIGTERM. When a worker fails, the others are told at once; those that have not ended a second
// later, or after a second signal, are killed. Workers and all that they start end with the
// launcher, however it dies (guardian.h): they are killed, or with a `farewell` get SIGHUP and so
// long to save. The memory that they share has no name: nothing is left behind.
//
// A worker that is killed is no failure if the others survive it (`survive`): the launcher
// coordinates them (commit.h), and gives them the means to talk without it. One that has not been
// heard of for `heartbeat_limit`, or has not got on for `progress_limit`, is killed first.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cluster/faults.h"
#include "cluster/worker_place.h"

namespace starling {

struct LaunchOptions {
  std::vector<std::string> command;  // program and arguments
  int workers = 1;
  int servers = 0;  // so many of the workers, the last, are to serve and compute nothing
  int lanes = 0;    // cores for each worker; 0: as many as there are for all
  FabricKind fabric = FabricKind::kShm;
  LinkOptions link = {};  // tcp: the network that the workers are to see
  bool apart = false;     // each worker has its own state, also through shared memory
  bool survive = false;
  bool respawn = false;                                // a lost worker is replaced by a new one
  int min_workers = 1;                                 // with fewer, the others save and wait …
  std::chrono::milliseconds wait_for_workers{60'000};  // … so long for more; then the job ends
  std::chrono::milliseconds heartbeat_limit{2000};
  std::chrono::milliseconds progress_limit{60'000};
  std::chrono::milliseconds farewell{0};  // that workers have after the launcher's death
  bool resumes = false;                   // the program has --resume
  std::vector<Fault> faults;              // kills and freezes with a time are the launcher's
  // Throws Error if a worker that is started now would not be like the others.
  std::function<void()> check_newcomer = {};
};

// Blocks until all workers have ended, and says what they told it (worker_error.h). Returns the
// exit code of the cause: of the first that failed by itself, 1 for one that was killed, 143 for
// one that was asked to stop and left that to the system; else the chief's. Throws Error when they
// can't be started.
int launch(const LaunchOptions& options);

}  // namespace starling
