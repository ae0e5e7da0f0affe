// For tests with workers: they are threads of one process.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/control.h"
#include "cluster/coordination.h"
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

  uint16_t port(int rank) const { return ports_[static_cast<size_t>(rank)]; }  // over tcp
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

// Calls work(world) as the worker of each of these places, and returns what they threw.
template <typename Work>
std::vector<std::string> run_at(const std::vector<WorkerPlace>& places, Work work) {
  std::vector<std::string> errors(places.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(std::make_shared<World>(places[rank]));
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  threads.clear();  // joins
  return errors;
}

// Likewise, as each of `workers` workers.
template <typename Work>
std::vector<std::string> run_workers(int workers, Work work, FabricKind fabric = FabricKind::kTcp) {
  const WorkerPlaces all(workers, fabric);
  std::vector<WorkerPlace> places;
  for (int rank = 0; rank < workers; ++rank) places.push_back(all.of(rank));
  return run_at(places, work);
}

// Likewise, over tcp and with a launcher's coordination, which nobody is lost to.
template <typename Work>
std::vector<std::string> run_coordinated(int workers, Work work) {
  const WorkerPlaces all(workers);
  Coordination coordination({.workers = workers});
  std::vector<WorkerPlace> places;
  for (int rank = 0; rank < workers; ++rank) {
    auto [own, other] = control_sockets();
    coordination.add(rank, std::move(own), all.port(rank), false);
    places.push_back(all.of(rank));
    places.back().control = dup(other.fd());
  }
  const std::jthread thread([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> lines;
      for (int rank = 0; rank < workers; ++rank)
        lines.push_back({.fd = coordination.fd(rank), .events = POLLIN, .revents = 0});
      poll(lines.data(), lines.size(), 10);
      for (int rank = 0; rank < workers; ++rank) coordination.hear(rank);
    }
  });
  return run_at(places, work);
}

}  // namespace starling
