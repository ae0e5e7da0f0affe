// WorkerStarter: starts the processes of workers on this host, each with its place in the world,
// its cores, and its lines to the launcher.
#pragma once

#include <optional>
#include <vector>

#include "cluster/core_plan.h"
#include "cluster/guardian.h"
#include "cluster/launcher.h"
#include "cluster/stop_signals.h"
#include "cluster/worker_place.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/tcp/socket.h"

namespace starling {

// A pipe of this process, closed on exec; its read end does not block.
struct Pipe {
  Socket read_end, write_end;

  // Throws Error, which names what it was for.
  explicit Pipe(const char* what);
};

class WorkerStarter {
 public:
  // Makes what the first workers meet by. `errors` is their pipe for worker_error.h.
  WorkerStarter(const LaunchOptions& options, int errors);

  struct Started {
    pid_t process = -1;
    Socket pidfd;
    Socket output;      // what it prints; none of worker 0, which has the launcher's own
    Socket control;     // with `survive`
    uint16_t port = 0;  // where it listens, over tcp
  };
  // Worker options.workers and later ones join the others. It gets the cores of that slot, of as
  // many as there are workers in the beginning. Throws Error when there can't be more processes.
  // The calls are in order of rank.
  Started start(int rank, int slot);

  // The worker has ended: tells the others, over tcp, which may still wait to meet it.
  void tell_of_end(int ended) const;

  // Of the first view; null over tcp.
  const SharedSegment* segment() const { return segment_ ? &*segment_ : nullptr; }

  // To all that run, and what they have started themselves.
  const Guardian& guardian() const { return guardian_; }
  StopSignals& signals() { return signals_; }

 private:
  void listen();
  WorkerPlace place(int rank) const;
  [[noreturn]] void become_worker(int rank, int slot, pid_t launcher, int output,
                                  int control) const;
  void pin(int slot) const;

  const LaunchOptions& options_;
  const int errors_;
  const std::chrono::steady_clock::time_point launched_ = std::chrono::steady_clock::now();
  const std::vector<Cpu> cpus_;
  StopSignals signals_;
  const Pipe lives_{"the lives of workers"};  // each has it as long as it lives
  const Guardian guardian_;
  std::optional<SharedSegment> segment_;
  std::vector<TcpListener> listeners_;
  JobToken token_{};
};

}  // namespace starling
