// WorkerPlace: what a launcher tells a worker that it starts, through its environment and inherited
// descriptors. Nothing else is shared before the workers meet.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/paced/link_options.h"
#include "fabric/tcp/hello.h"

namespace starling {

enum class FabricKind { kShm, kTcp };

// The number of the view that a launcher's first workers are in.
inline constexpr int64_t kFirstView = 1;

struct WorkerPlace {
  int rank = 0;
  int workers = 1;
  int servers = 0;  // so many of the workers that were there first, the last, only serve
  FabricKind fabric = FabricKind::kShm;
  LinkOptions link = {};        // tcp: the network that it is to see
  bool apart = false;           // shm: it is for messages only, each worker has its own state
  bool crowded = false;         // there are fewer cores than workers
  int descriptor = -1;          // shm: the world's segment; tcp: this worker's listening socket
  std::vector<uint16_t> ports;  // tcp: by rank, on loopback
  JobToken token{};             // tcp: proves that a connection is of this job
  int errors = -1;              // the pipe for worker_error.h; −1: nobody listens
  int control = -1;             // the socket to the launcher; −1: a lost worker ends the job
  bool joins = false;           // the others are under way already
  // How long it waits for another that is silent, if nobody says that it is lost.
  std::chrono::milliseconds patience{60'000};
  // When the job was launched: from then on times of planned faults count. None: not by a launcher.
  std::optional<std::chrono::steady_clock::time_point> launched = {};
  int out = -1, err = -1;  // the launcher's own, for a worker that becomes the chief

  // As variables of the environment: STARLING_RANK and others.
  std::vector<std::pair<std::string, std::string>> variables() const;

  // Reads them; nothing when the process was not started by a launcher. Throws Error when they make
  // no sense.
  using Lookup = std::function<const char*(const char* name)>;
  static std::optional<WorkerPlace> find(const Lookup& lookup);

  // For a launcher: the ports that its user wants, by rank; none: any that are free. Throws Error
  // when they are not one for each worker.
  static std::vector<uint16_t> find_ports(const Lookup& lookup, int workers);
};

}  // namespace starling
