// For tests with workers: they are threads of one process.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/world.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/tcp/socket.h"
#include "starling/error.h"

namespace starling {

// What the workers of one world meet by, and their places in it.
class WorkerPlaces {
 public:
  explicit WorkerPlaces(int workers, FabricKind fabric = FabricKind::kTcp)
      : workers_(workers), fabric_(fabric) {
    if (fabric == FabricKind::kShm) {
      segment_.emplace(ShmFabric::make_segment({.world = workers}));
      return;
    }
    listeners_.resize(static_cast<size_t>(workers));
    for (const TcpListener& listener : listeners_) ports_.push_back(listener.address().port);
  }

  // Asked for once by each.
  WorkerPlace of(int rank) const {
    WorkerPlace place{.rank = rank, .workers = workers_, .fabric = fabric_};
    place.ports = ports_;
    place.descriptor = dup(segment_ ? segment_->fd() : listeners_[static_cast<size_t>(rank)].fd());
    return place;
  }

 private:
  const int workers_;
  const FabricKind fabric_;
  std::optional<SharedSegment> segment_;
  std::vector<TcpListener> listeners_;
  decltype(WorkerPlace::ports) ports_;
};

// Calls work(world) as each of `workers` workers, and returns what they threw.
template <typename Work>
std::vector<std::string> run_workers(int workers, Work work, FabricKind fabric = FabricKind::kTcp) {
  const WorkerPlaces places(workers, fabric);
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
