// Rendezvous: how the ranks of a world find each other over tcp. Each listens; each connects to all
// of lower rank and is connected to by all of higher rank; both sides of a connection say hello. A
// connection that is not of this job is closed, and never keeps others waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "fabric/tcp/hello.h"
#include "fabric/tcp/socket.h"

namespace starling {

struct RendezvousOptions {
  int rank = 0;
  std::vector<TcpAddress> addresses;  // by rank: the world
  JobToken token{};
  uint64_t view = 0;
  int connections_per_peer = 1;
  std::chrono::milliseconds deadline{10'000};
  // Whether others may come later to this view: who is refused tries again. A flag that ends the
  // meeting when it becomes true, within milliseconds.
  const std::atomic<bool>* interrupt = nullptr;
};

// The connections to each rank, `connections_per_peer` each, none to oneself. Blocks at most to the
// deadline; throws Error that names who is missing or refused this rank, and why.
std::vector<std::vector<Socket>> rendezvous(const TcpListener& listener,
                                            const RendezvousOptions& options);

// By whoever started the ranks of a view: tells one that is perhaps still waiting for others that
// the rank of these options has ended, and won't come. It then gives up, unless it has met that
// one. Blocks for 100 ms at most; whether it is heard is not known.
void tell_of_end(const RendezvousOptions& of_ended, const TcpAddress& listener);

}  // namespace starling
