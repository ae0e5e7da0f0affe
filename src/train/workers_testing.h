// For tests with workers: they are threads of one process, over tcp.
#pragma once

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "cluster/world.h"
#include "fabric/tcp/socket.h"
#include "starling/error.h"

namespace starling {

// The sockets of the workers of one world, and their places in it.
class WorkerPlaces {
 public:
  explicit WorkerPlaces(int workers) : listeners_(static_cast<size_t>(workers)) {
    for (const TcpListener& listener : listeners_) ports_.push_back(listener.address().port);
  }

  // Asked for once by each.
  WorkerPlace of(int rank) const {
    WorkerPlace place{
        .rank = rank, .workers = static_cast<int>(listeners_.size()), .fabric = FabricKind::kTcp};
    place.ports = ports_;
    place.descriptor = dup(listeners_[static_cast<size_t>(rank)].fd());
    return place;
  }

 private:
  std::vector<TcpListener> listeners_;
  decltype(WorkerPlace::ports) ports_;
};

// Calls work(world) as each of `workers` workers, and returns what they threw.
template <typename Work>
std::vector<std::string> run_workers(int workers, Work work) {
  const WorkerPlaces places(workers);
  std::vector<std::string> errors(static_cast<size_t>(workers));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(std::make_shared<World>(places.of(rank)));
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();  // joins
  return errors;
}

}  // namespace starling
